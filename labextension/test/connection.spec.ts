import { REFUSED_PAUSE_MS, SILENCE_MS, StatusConnection } from '../src/connection';
import type { ISocket } from '../src/connection';

class Stage {
  sockets: (ISocket & { closed: boolean })[] = [];
  timers = new Map<object, { at: number; action: () => void }>();
  nowMs = 0;
  received: unknown[] = [];
  lost: (string | null)[] = [];
  refusal: string | null = null;
  accepts = true;

  connection = new StatusConnection(
    {
      open: () => {
        const socket = { onmessage: null, onclose: null, closed: false, close: () => undefined };
        socket.close = () => {
          socket.closed = true;
          return undefined;
        };
        this.sockets.push(socket);
        return socket;
      },
      later: (delayMs, action) => {
        const key = {};
        this.timers.set(key, { at: this.nowMs + delayMs, action });
        return () => {
          this.timers.delete(key);
        };
      },
      random: () => 1,
      refusal: () => Promise.resolve(this.refusal)
    },
    {
      received: message => {
        this.received.push(message);
        return this.accepts;
      },
      lost: why => {
        this.lost.push(why);
      }
    }
  );

  get last(): ISocket & { closed: boolean } {
    const socket = this.sockets[this.sockets.length - 1];
    if (socket === undefined) {
      throw new Error('nothing was opened');
    }
    return socket;
  }

  pass(ms: number): void {
    this.nowMs += ms;
    for (const [key, timer] of [...this.timers]) {
      if (timer.at <= this.nowMs && this.timers.delete(key)) {
        timer.action();
      }
    }
  }
}

describe('the connection', () => {
  it('hands messages on, and what is no JSON as nothing', () => {
    const stage = new Stage();
    stage.connection.start();
    stage.last.onmessage?.({ data: '{"a":1}' });
    stage.last.onmessage?.({ data: 'nonsense' });
    expect(stage.received).toEqual([{ a: 1 }, null]);
  });

  it('comes back within five seconds, however often nobody answered', async () => {
    const stage = new Stage();
    stage.connection.start();
    for (let i = 0; i < 20; i++) {
      stage.last.onclose?.({ code: 1006 });
      await Promise.resolve();
      stage.pass(5000);
      expect(stage.sockets).toHaveLength(i + 2);
    }
    expect(stage.lost).toEqual(Array(20).fill(null));
  });

  it('tells why a server refuses, and asks it seldom', async () => {
    const stage = new Stage();
    stage.refusal = 'not loaded';
    stage.connection.start();
    for (let i = 0; i < 3; i++) {
      stage.last.onclose?.({ code: 1006 });
      await Promise.resolve();
      stage.pass(REFUSED_PAUSE_MS - 1);
      expect(stage.sockets).toHaveLength(i + 1);
      stage.pass(1);
      expect(stage.sockets).toHaveLength(i + 2);
    }
    expect(stage.lost).toEqual(Array(3).fill('not loaded'));
    stage.refusal = null;
    stage.last.onclose?.({ code: 1006 });
    await Promise.resolve();
    stage.pass(5000);
    expect(stage.sockets).toHaveLength(5);
    expect(stage.lost[3]).toBeNull();
  });

  it('says nothing of a refusal that is over', async () => {
    const stage = new Stage();
    stage.refusal = 'not loaded';
    stage.connection.start();
    stage.last.onclose?.({ code: 1006 });
    stage.pass(5000);
    stage.last.onmessage?.({ data: '{}' });
    await Promise.resolve();
    expect(stage.lost).toEqual([]);
  });

  it('begins anew after a message that cannot be used', () => {
    const stage = new Stage();
    stage.connection.start();
    stage.accepts = false;
    stage.last.onmessage?.({ data: '{}' });
    expect(stage.sockets[0]?.closed).toBe(true);
    stage.pass(5000);
    expect(stage.sockets).toHaveLength(2);
  });

  it('takes silence for a dead connection', () => {
    const stage = new Stage();
    stage.connection.start();
    stage.pass(SILENCE_MS - 1);
    stage.last.onmessage?.({ data: '{}' });
    stage.pass(SILENCE_MS - 1);
    expect(stage.lost).toEqual([]);
    stage.pass(2);
    expect(stage.lost).toEqual([null]);
  });

  it('does not trust a connection whose network has gone', () => {
    const stage = new Stage();
    stage.connection.doubt();
    stage.connection.start();
    stage.last.onmessage?.({ data: '{}' });
    stage.connection.doubt();
    expect(stage.lost).toEqual([null]);
    expect(stage.last.closed).toBe(true);
    stage.pass(300);
    expect(stage.sockets).toHaveLength(2);
  });

  it('stays closed once it was stopped, and can be started again', () => {
    const stage = new Stage();
    stage.connection.start();
    stage.last.onclose?.({ code: 1006 });
    stage.connection.stop();
    stage.pass(60_000);
    expect(stage.sockets).toHaveLength(1);
    stage.connection.start();
    stage.connection.start();
    expect(stage.sockets).toHaveLength(2);
    stage.connection.stop();
    expect(stage.last.closed).toBe(true);
  });
});
