// The host's functions, wherever the node runs: in a component, or in a test that plays the host.
// Questions, inputs and answers pass through here as JSON texts.

const NOBODY = new Proxy(
  {},
  {
    get() {
      throw new Error(
        "a host call outside of a component: there is no host here to answer it; " +
          'in a test, call the node through Script of "holdpoint-guest/testing"',
      );
    },
  },
);

// Kept where the module that speaks the contract and this one find it, in whatever way they are bundled.
const KEY = Symbol.for("holdpoint.host");

export function host() {
  return globalThis[KEY] ?? NOBODY;
}

/** `other` is the host from here on; gives back the one before. */
export function replace(other) {
  const before = globalThis[KEY];
  globalThis[KEY] = other;
  return before;
}
