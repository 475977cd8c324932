/** The user of the console: sign-in, sign-out, rights. */
import { computed, signal } from '@preact/signals'

import { json, send, signInNeeded, writeToken } from './client'

export type Right = 'read' | 'append' | 'admin'

export interface Session {
  name: string
  kind: 'user' | 'token' | 'anonymous' | 'process'
  roles: Record<string, Right[]>
  write_token?: string
  version: string
}

export const session = signal<Session | undefined>(undefined)

const accept = (found: Session): void => {
  session.value = found
  writeToken.value = found.write_token ?? ''
  signInNeeded.value = false
}

/** Asks the server who the caller is. A caller who has to sign in is no error. */
export const loadSession = async (): Promise<void> => {
  try {
    accept(await json<Session>('/v1/session'))
  } catch (error) {
    if (!signInNeeded.value) throw error
    session.value = undefined
  }
}

const base64 = (text: string): string => btoa(String.fromCharCode(...new TextEncoder().encode(text)))

/** The header of credentials: of a token if there is one, else of a user. */
export const authorization = (user: string, password: string, token: string): string =>
  token === '' ? `Basic ${base64(`${user}:${password}`)}` : `Bearer ${token.trim()}`

export const signIn = async (user: string, password: string, token: string): Promise<void> => {
  const headers = { Authorization: authorization(user, password, token) }
  accept(await json<Session>('/v1/session', { method: 'POST', headers }))
}

export const signOut = async (): Promise<void> => {
  await send('/v1/session', { method: 'DELETE' }).catch(() => undefined)
  session.value = undefined
  writeToken.value = ''
  signInNeeded.value = true
}

/** True when `roles` include the right on a store; without a store, on all stores. */
export const hasRight = (roles: Session['roles'], right: Right, store?: string): boolean => {
  const held = (place: string) => {
    const rights = Object.hasOwn(roles, place) ? roles[place] : undefined
    return rights !== undefined && (rights.includes(right) || rights.includes('admin'))
  }
  return held('*') || (store !== undefined && held(store))
}

/** True when the user has the right. Buttons for other operations are not shown. */
export const may = (right: Right, store?: string): boolean =>
  session.value !== undefined && hasRight(session.value.roles, right, store)

/** The user may see the whole server. */
export const seesServer = computed(() => may('read'))
