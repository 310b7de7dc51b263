// The running hash of goldens: tests/text/tokenizer_golden.h computes the same.

/** 64 bits in two 32-bit halves over a stream of 32-bit integers. */
export class StreamHash {
  constructor() {
    this.low = 0x811c9dc5 | 0;
    this.high = 0x27220a95 | 0;
    this.count = 0;
  }
  add(value) {
    this.low = Math.imul(this.low ^ value, 0x01000193);
    this.low ^= this.low >>> 15;
    this.high = Math.imul(this.high ^ value, 0x5bd1e995);
    this.high ^= this.high >>> 13;
  }
  /** One text's ids, and a mark where they end. */
  addIds(ids) {
    for (const id of ids) this.add(id);
    this.add(-1);
    this.count += ids.length;
  }
  /** One text as UTF-8 bytes. */
  addText(text) {
    this.addIds(Buffer.from(text, 'utf8'));
  }
  hex() {
    const part = (x) => (x >>> 0).toString(16).padStart(8, '0');
    return part(this.high) + part(this.low);
  }
}
