/** The pages of the console: names, paths, icons, and the code that is loaded when a page is opened. */
import type { ComponentType } from 'preact'

export interface Page {
  /** First segment of its path. */
  id: string
  name: string
  /** Key after `g`. */
  key: string
  /** Path of its icon, 24 by 24. */
  icon: string
  load: () => Promise<ComponentType>
}

export const PAGES: readonly Page[] = [
  {
    id: 'now',
    name: 'Now',
    key: 'n',
    icon: 'M3 12h4l3-8 4 16 3-8h4',
    load: async () => (await import('./pages/now')).Now,
  },
  {
    id: 'commits',
    name: 'Commits',
    key: 'c',
    icon: 'M12 3v5m0 8v5M12 8a4 4 0 1 0 0 8a4 4 0 1 0 0-8',
    load: async () => (await import('./pages/commits')).Commits,
  },
  {
    id: 'events',
    name: 'Events',
    key: 'e',
    icon: 'M4 6h16M4 12h16M4 18h10',
    load: async () => (await import('./pages/events')).Events,
  },
  {
    id: 'documents',
    name: 'Documents',
    key: 'd',
    icon: 'M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6',
    load: async () => (await import('./pages/documents')).Documents,
  },
  {
    id: 'sql',
    name: 'SQL',
    key: 's',
    icon: 'M4 5h16v14H4zM4 10h16M10 10v9',
    load: async () => (await import('./pages/sql')).Sql,
  },
  {
    id: 'metrics',
    name: 'Metrics',
    key: 'm',
    icon: 'M4 20V4M4 20h16M8 16l4-6 3 3 5-7',
    load: async () => (await import('./pages/metrics')).Metrics,
  },
  {
    id: 'keep',
    name: 'Keep',
    key: 'k',
    icon: 'M12 3l8 3v6c0 5-4 8-8 9c-4-1-8-4-8-9V6zM9 12l2 2l4-4',
    load: async () => (await import('./pages/keep')).Keep,
  },
]
