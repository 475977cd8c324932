package driver

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// TestFigures prints operations per second, for MONGO_FIGURES seconds each row; figures.py reads them.
func TestFigures(t *testing.T) {
	seconds, err := strconv.ParseFloat(os.Getenv("MONGO_FIGURES"), 64)
	if err != nil {
		t.Skip("no figures asked for")
	}
	ctx, db := context.Background(), open(t, options.Client().SetMaxPoolSize(64))
	for _, workers := range []int{1, 32} {
		c := db.Collection(fmt.Sprint("c", workers))
		check(t, c.Drop(ctx))
		var last atomic.Int64
		row := func(name string, work func(n int64) error) {
			var done atomic.Int64
			var group sync.WaitGroup
			begin := time.Now()
			end := begin.Add(time.Duration(seconds * float64(time.Second)))
			for range workers {
				group.Go(func() {
					for time.Now().Before(end) {
						if err := work(done.Add(1)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			fmt.Printf("FIGURE go %s %d %.0f\n", name, workers, float64(done.Load())/time.Since(begin).Seconds())
		}
		row("insert_one", func(n int64) error {
			last.Store(n)
			_, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: n}, {Key: "value", Value: n}, {Key: "data", Value: "some test data"}})
			return err
		})
		newest := last.Load()
		row("find_one", func(n int64) error {
			return c.FindOne(ctx, bson.D{{Key: "_id", Value: n%min(newest-64, 10_000) + 1}}).Err()
		})
		row("replace_one", func(n int64) error {
			id := n%min(newest-64, 10_000) + 1
			_, err := c.ReplaceOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "value", Value: n}, {Key: "updated", Value: true}})
			return err
		})
	}
}
