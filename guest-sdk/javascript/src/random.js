// `Math.random` of a node: the engine's own generator was seeded when the component was built, and would give
// every task the same numbers. These are the same in every attempt of a task, differ between tasks, and are
// no secret.

export function seed(text) {
  // FNV-1a, four times with other starts; then xoshiro128**.
  const state = [0x811c9dc5, 0x01000193, 0x9e3779b9, 0x85ebca6b].map((start) => {
    let hash = start;
    for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    return hash >>> 0 || 1;
  });
  const left = (x, by) => (x << by) | (x >>> (32 - by));
  const next = () => {
    const result = Math.imul(left(Math.imul(state[1], 5), 7), 9) >>> 0;
    const shifted = state[1] << 9;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = left(state[3], 11);
    return result;
  };
  for (let i = 0; i < 16; i += 1) next();
  Math.random = () => (next() * 2 ** 21 + (next() >>> 11)) / 2 ** 53;
}
