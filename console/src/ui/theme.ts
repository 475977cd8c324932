/** Light or dark: as the system says, or as the user has chosen in this browser. */
import { effect, signal } from '@preact/signals'

type Choice = 'system' | 'light' | 'dark'

const KEY = 'ropewalk.theme'
const dark = window.matchMedia('(prefers-color-scheme: dark)')

/** Storage of the browser; absent where it is blocked. */
export const stored = (key: string): string | null => {
  try {
    return window.localStorage.getItem(key)
  } catch {
    return null
  }
}

export const store = (key: string, value: string): void => {
  try {
    window.localStorage.setItem(key, value)
  } catch {
    // Blocked or full: the choice lasts until the page is closed.
  }
}

const initial = stored(KEY)
export const choice = signal<Choice>(initial === 'light' || initial === 'dark' ? initial : 'system')
const system = signal(dark.matches ? 'dark' : 'light')
export const theme = signal<'light' | 'dark'>('light')

dark.addEventListener('change', () => {
  system.value = dark.matches ? 'dark' : 'light'
})
effect(() => {
  const chosen = choice.value
  theme.value = chosen === 'system' ? (system.value as 'light' | 'dark') : chosen
  if (chosen === 'system') delete document.documentElement.dataset['theme']
  else document.documentElement.dataset['theme'] = chosen
})

/** The next of system, light, dark. */
export const nextTheme = (): void => {
  choice.value = choice.value === 'system' ? 'light' : choice.value === 'light' ? 'dark' : 'system'
  store(KEY, choice.value)
}
