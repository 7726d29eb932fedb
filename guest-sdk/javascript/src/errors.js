// Why a node could not do its work. Two words to know: *retry* and *fail*.

/** What ends a node short of an outcome. Throw a `Retry` or a `Fail`, not this. */
export class NodeError extends Error {
  constructor(message, detail) {
    super(message instanceof Error ? message.message : String(message));
    this.name = new.target.name;
    /** Anything more, for a program; what cannot be written as JSON is left out. */
    this.detail = detail;
  }
}

/** Worth another attempt. Answers and effects that succeeded stay; the node runs from its beginning. */
export class Retry extends NodeError {}

/** Another attempt would fail in the same way. */
export class Fail extends NodeError {}
