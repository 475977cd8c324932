/** Users, tokens, backups and settings of the server. */
import { json, page, path, send } from './client'
import type { Page } from './client'
import type { Right } from './session'

export type Roles = Record<string, Right[]>

export interface User {
  name: string
  roles: Roles
  created_at: string
}

export interface Token {
  id: string
  name: string
  roles: Roles
  created_at: string
  expires_at: string | null
}

export interface Backup {
  name: string
  seq: number
  lsn: number
  files: number
  bytes: number
  linked_bytes: number
}

export interface Setting {
  name: string
  value: string
  origin: string
}

export const listUsers = async (after: string | undefined, signal: AbortSignal): Promise<Page<User>> => page('/v1/users', 'users', after, signal)

export const createUser = async (name: string, password: string, roles: Roles): Promise<void> => {
  await send(path`/v1/users/${name}`, { method: 'PUT', body: { password, roles } })
}

export const setPassword = async (name: string, password: string): Promise<void> => {
  await send(path`/v1/users/${name}/password`, { method: 'PUT', body: { password } })
}

export const dropUser = async (name: string): Promise<void> => {
  await send(path`/v1/users/${name}`, { method: 'DELETE' })
}

export const changeRole = async (name: string, store: string, right: Right, granted: boolean): Promise<void> => {
  await send(path`/v1/users/${name}/roles/${store}/${right}`, { method: granted ? 'PUT' : 'DELETE' })
}

export const listTokens = async (after: string | undefined, signal: AbortSignal): Promise<Page<Token>> => page('/v1/tokens', 'tokens', after, signal)

/** Creates a token, which is returned this once. */
export const createToken = async (name: string, roles: Roles, expiresInSeconds: number | undefined): Promise<string> => {
  const body = { name, roles, ...(expiresInSeconds !== undefined && { expires_in_seconds: expiresInSeconds }) }
  return (await json<{ token: string }>('/v1/tokens', { method: 'POST', body })).token
}

export const dropToken = async (id: string): Promise<void> => {
  await send(path`/v1/tokens/${id}`, { method: 'DELETE' })
}

export const makeBackup = async (name: string): Promise<Backup> =>
  name === '' ? json('/v1/backups', { method: 'POST' }) : json(path`/v1/backups/${name}`, { method: 'PUT' })

export const listBackups = async (signal?: AbortSignal): Promise<string[]> =>
  (await json<{ backups: { name: string }[] }>('/v1/backups', { signal })).backups.map(({ name }) => name)

export const listSettings = async (signal?: AbortSignal): Promise<Setting[]> =>
  (await json<{ settings: Setting[] }>('/v1/settings', { signal })).settings

/** Rights from the fields of a form: `store` and the names of the rights. */
export const rolesOf = (store: string, rights: readonly string[]): Roles => {
  const known = (['read', 'append', 'admin'] as const).filter((right) => rights.includes(right))
  return known.length === 0 || store === '' ? {} : { [store]: known }
}
