// Lines for the operator's log. A line is written once: not again while a resumed node goes over what it did
// before. Long lines and talkative nodes are cut off, and the log says so.

import { host } from "./host.js";

const line = (level) => (message) => host().write(level, typeof message === "string" ? message : String(message));

export const trace = line("trace");
export const debug = line("debug");
export const info = line("info");
export const warn = line("warn");
export const error = line("error");
