/** The WebSocket to the server: comes back by itself, and is closed while nobody looks. */

/** The part of a WebSocket that is needed. */
export interface ISocket {
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number }) => void) | null;
  close(): void;
}

/** What the connection needs of its surroundings; a test brings its own. */
export interface ISurroundings {
  open(): ISocket;
  /** Calls back after `delayMs`; the result takes it back. */
  later(delayMs: number, action: () => void): () => void;
  random(): number;
  /** Why the server refuses what it answers, as one sentence; `null`: it does not answer, or refuses nothing. */
  refusal(): Promise<string | null>;
}

export interface IListener {
  /** Returns false when the message could not be used: the connection begins anew. */
  received(message: unknown): boolean;
  /** `why`: the server's refusal; `null`: it does not answer. */
  lost(why: string | null): void;
}

const FIRST_PAUSE_MS = 300;
const LONGEST_PAUSE_MS = 4000;
/** Each refusal is a line in the server's log. */
export const REFUSED_PAUSE_MS = 60_000;
/** The server says something every 15 seconds. */
export const SILENCE_MS = 40_000;

export class StatusConnection {
  private _socket: ISocket | null = null;
  private _pauseMs = FIRST_PAUSE_MS;
  private _cancelRetry: (() => void) | null = null;
  private _cancelWatch: (() => void) | null = null;
  private _wanted = false;
  /** Whether this connection has brought anything. */
  private _heard = false;

  constructor(
    private readonly _surroundings: ISurroundings,
    private readonly _listener: IListener
  ) {}

  /** Connect, and stay connected. Idempotent. */
  start(): void {
    if (!this._wanted) {
      this._wanted = true;
      this._connect();
    }
  }

  /** Disconnect, and stay so. Idempotent. */
  stop(): void {
    this._wanted = false;
    this._cancelRetry?.();
    this._cancelRetry = null;
    this._drop();
  }

  /** The network has gone, perhaps: what stood may be dead, and is made anew. */
  doubt(): void {
    if (this._wanted) {
      this._again();
    }
  }

  private _connect(): void {
    const socket = this._surroundings.open();
    this._socket = socket;
    this._watch();
    socket.onmessage = event => {
      this._watch();
      if (this._listener.received(parsed(event.data))) {
        this._heard = true;
        this._pauseMs = FIRST_PAUSE_MS;
      } else {
        this._again();
      }
    };
    socket.onclose = () => {
      this._again();
    };
  }

  private _watch(): void {
    this._cancelWatch?.();
    this._cancelWatch = this._surroundings.later(SILENCE_MS, () => {
      this._again();
    });
  }

  private _again(): void {
    const heard = this._heard;
    this._drop();
    this._retry(this._pauseMs * (0.5 + this._surroundings.random() / 2));
    this._pauseMs = Math.min(LONGEST_PAUSE_MS, this._pauseMs * 2);
    if (heard) {
      this._listener.lost(null);
    } else {
      void this._surroundings.refusal().then(why => {
        this._refused(why);
      });
    }
  }

  private _refused(why: string | null): void {
    if (this._heard) {
      return; // it has changed its mind meanwhile
    }
    this._listener.lost(why);
    if (why !== null && this._cancelRetry !== null) {
      this._retry(REFUSED_PAUSE_MS);
    }
  }

  private _retry(delayMs: number): void {
    this._cancelRetry?.();
    this._cancelRetry = this._surroundings.later(delayMs, () => {
      this._cancelRetry = null;
      if (this._wanted) {
        this._connect();
      }
    });
  }

  private _drop(): void {
    this._heard = false;
    this._cancelWatch?.();
    this._cancelWatch = null;
    if (this._socket !== null) {
      this._socket.onmessage = this._socket.onclose = null;
      this._socket.close();
      this._socket = null;
    }
  }
}

function parsed(data: unknown): unknown {
  try {
    return typeof data === 'string' ? JSON.parse(data) : null;
  } catch {
    return null; // no JSON is no message: the listener refuses it
  }
}
