// Command histories checks that histories of registers are linearizable, with Porcupine.
//
// Standard input has one operation per line, as JSON; see [Operation]. Standard output has one line with the result; see
// [Result]. Each register is checked separately: linearizability is a property of every object alone.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Time limit of one register. A register that exceeds it is undecided, which is reported.
const registerTime = 60 * time.Second

// An Operation on a register. The register has a value and a version, which each write increments; before the first write
// the version is 0.
type Operation struct {
	Register string `json:"register"`
	Client   int    `json:"client"`
	// "read"; "write", which stores Value; "cas", which stores Value if the version is Expected.
	Kind     string `json:"kind"`
	Value    string `json:"value"`
	Expected int64  `json:"expected"`
	// Nanoseconds of one clock. Without Returned the outcome is unknown: the operation takes effect at any later time, or
	// never, which is a time after all others.
	Called   int64  `json:"called"`
	Returned *int64 `json:"returned"`
	// The outcome: of "cas", whether it stored the value; of "read" and "write", the version, or -1 if the client did not
	// learn it; of "read", also the value.
	Stored  bool   `json:"stored"`
	Version int64  `json:"version"`
	Found   string `json:"found"`
}

// A Result of all registers.
type Result struct {
	Registers  int `json:"registers"`
	Operations int `json:"operations"`
	// Registers whose history is not linearizable, with their operations in the order of their calls.
	Illegal map[string][]string `json:"illegal"`
	// Registers that took too long.
	Undecided []string `json:"undecided"`
}

type state struct {
	version int64
	value   string
}

// The next state of a register, and whether an operation with this outcome is possible.
func step(before, input, output any) (bool, any) {
	is, op := before.(state), input.(Operation)
	after := state{is.version + 1, op.Value}
	isKnown := output != nil
	switch op.Kind {
	case "read":
		return op.Version == is.version && op.Found == is.value, is
	case "write":
		return !isKnown || op.Version == -1 || op.Version == after.version, after
	case "cas":
		stores := op.Expected == is.version
		if !stores {
			after = is
		}
		return !isKnown || op.Stored == stores, after
	}
	panic("kinds are checked when they are read")
}

var register = porcupine.Model{
	Init: func() any { return state{} },
	Step: step,
}

func read(from io.Reader) ([]Operation, error) {
	var operations []Operation
	decoder := json.NewDecoder(bufio.NewReader(from))
	decoder.DisallowUnknownFields()
	for {
		var op Operation
		err := decoder.Decode(&op)
		if errors.Is(err, io.EOF) {
			return operations, nil
		}
		if err != nil {
			return nil, fmt.Errorf("operation %d: %w", len(operations)+1, err)
		}
		if !slices.Contains([]string{"read", "write", "cas"}, op.Kind) {
			return nil, fmt.Errorf("operation %d: kind %q is neither read, write nor cas", len(operations)+1, op.Kind)
		}
		if op.Returned == nil && op.Kind == "read" {
			return nil, fmt.Errorf("operation %d: a read without an outcome says nothing", len(operations)+1)
		}
		if op.Returned != nil && *op.Returned < op.Called {
			return nil, fmt.Errorf("operation %d returned before it was called", len(operations)+1)
		}
		operations = append(operations, op)
	}
}

func check(operations []Operation) Result {
	result := Result{Operations: len(operations), Illegal: map[string][]string{}, Undecided: []string{}}
	histories := map[string][]porcupine.Operation{}
	for _, op := range operations {
		one := porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Called, Return: math.MaxInt64}
		if op.Returned != nil {
			one.Return, one.Output = *op.Returned, true
		}
		histories[op.Register] = append(histories[op.Register], one)
	}
	result.Registers = len(histories)
	for name, history := range histories {
		switch porcupine.CheckOperationsTimeout(register, history, registerTime) {
		case porcupine.Illegal:
			result.Illegal[name] = described(history)
		case porcupine.Unknown:
			result.Undecided = append(result.Undecided, name)
		}
	}
	slices.Sort(result.Undecided)
	return result
}

// Describes an operation, with times in milliseconds since the first call.
func (op Operation) describe(first int64) string {
	since := func(moment int64) float64 { return float64(moment-first) / 1e6 }
	text := fmt.Sprintf("%9.1f", since(op.Called))
	if op.Returned == nil {
		text += " to unknown  "
	} else {
		text += fmt.Sprintf(" to %9.1f", since(*op.Returned))
	}
	text += fmt.Sprintf("  client %d: ", op.Client)
	switch op.Kind {
	case "read":
		return text + fmt.Sprintf("read version %d: %q", op.Version, op.Found)
	case "write":
		return text + fmt.Sprintf("write %q, version %d", op.Value, op.Version)
	}
	return text + fmt.Sprintf("replace version %d by %q: %t", op.Expected, op.Value, op.Stored)
}

func described(history []porcupine.Operation) []string {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var lines []string
	for _, one := range history {
		lines = append(lines, one.Input.(Operation).describe(history[0].Call))
	}
	return lines
}

func main() {
	operations, err := read(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(check(operations)); err != nil {
		log.Fatal(err)
	}
}
