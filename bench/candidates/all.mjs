import { findProgram } from '../places.mjs'
import { apache } from './apache.mjs'
import { nginx, nginxTuned } from './nginx.mjs'
import { bare, expressOidc, fastifySession, replyFrom } from './node-servers.mjs'
import { ours, oursLogged, oursUncached, oursWithWorkers } from './ours.mjs'

/** In the order of the table. */
export const CANDIDATES = [
  ours,
  oursUncached,
  oursLogged,
  bare,
  replyFrom,
  fastifySession,
  expressOidc,
  nginx,
  nginxTuned,
  apache,
]

/** Measured apart: they share the cores with the load. */
export const WORKERS = [oursWithWorkers(1), oursWithWorkers(2)]

/** Whether what a candidate is made of is installed on this machine. */
export function isInstalled({ program, isThere }) {
  return (program === undefined || findProgram(program) !== null) && (isThere === undefined || isThere())
}
