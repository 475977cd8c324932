/** A request that changes something, started by a button: while it runs, and its problem. */
import { useState } from 'preact/hooks'

import { problemOf } from '../api/client'
import type { Problem } from '../api/client'

export const useAction = (done: () => void) => {
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState<Problem>()
  const run = (request: () => Promise<unknown>): void => {
    setBusy(true)
    setProblem(undefined)
    request()
      .then(done, (error: unknown) => setProblem(problemOf(error)))
      .finally(() => setBusy(false))
  }
  return { busy, problem, run }
}
