/** A chart whose code is loaded when the first one is shown. */
import type { ComponentProps, ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'

import type { Chart } from './chart'
import { Busy } from './parts'

type Props = ComponentProps<typeof Chart>

export const LazyChart = (props: Props) => {
  const [loaded, setLoaded] = useState<{ view: ComponentType<Props> }>()
  useEffect(() => {
    import('./chart').then(
      ({ Chart }) => setLoaded({ view: Chart }),
      () => undefined,
    )
  }, [])
  return loaded ? <loaded.view {...props} /> : <Busy />
}
