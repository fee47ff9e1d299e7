/** What is said of a workload and of a GPU, in words. Pure. */

import type { ICause, IEntry, IGpu, INodeModel, IParts, IWorkload } from './tokens';

/** The part of a TranslationBundle that is needed. */
export interface ITranslate {
  __(message: string, ...values: (string | number)[]): string;
  /** `%1` is the number. */
  _n(one: string, many: string, number: number, ...values: (string | number)[]): string;
}

export type Units = 'binary' | 'decimal';

const UNITS: Record<Units, readonly (readonly [string, number])[]> = {
  binary: [
    ['TiB', 2 ** 40],
    ['GiB', 2 ** 30],
    ['MiB', 2 ** 20],
    ['KiB', 2 ** 10]
  ],
  decimal: [
    ['TB', 1e12],
    ['GB', 1e9],
    ['MB', 1e6],
    ['kB', 1e3]
  ]
};

/** `8 GiB`, `1.5 GiB`; what is not known is said so and never zero. */
export function bytesText(bytes: number | null, units: Units, trans: ITranslate): string {
  if (bytes === null) {
    return trans.__('unknown');
  }
  const [unit, factor] = UNITS[units].find(([, size]) => bytes >= size) ?? ['B', 1];
  return `${(bytes / factor).toFixed(1).replace(/\.0$/, '')} ${unit}`;
}

/** On how many GPUs it is, or is to be. */
export function gpusOf(workload: IWorkload): number {
  return workload.current.length || workload.gpu_count;
}

/** What is so on each of its GPUs: `8 GiB`, `2 × 8 GiB`. */
export function eachText(bytes: number, workload: IWorkload, units: Units, trans: ITranslate): string {
  const [gpus, size] = [gpusOf(workload), bytesText(bytes, units, trans)];
  return gpus === 1 ? size : `${gpus} × ${size}`;
}

/** Several sizes in the unit of the last one: `6 / 8 / 16 GiB`. */
export function sizesText(sizes: readonly number[], units: Units): string {
  const largest = sizes[sizes.length - 1] ?? 0;
  const [unit, factor] = UNITS[units].find(([, size]) => largest >= size) ?? ['B', 1];
  const numbers = sizes.map(size => (size / factor).toFixed(1).replace(/\.0$/, ''));
  return `${numbers.join(' / ')} ${unit}`;
}

/** `0.4 s`, `42 s`, `3 min`, `2 h 5 min`. */
export function durationText(seconds: number, trans: ITranslate): string {
  if (seconds < 60) {
    return trans.__('%1 s', seconds < 10 ? seconds.toFixed(1).replace(/\.0$/, '') : Math.floor(seconds));
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    return trans.__('%1 min', minutes);
  }
  return trans.__('%1 h %2 min', Math.floor(minutes / 60), minutes % 60);
}

/** Since when, by the server's clock; nothing where that is not known or makes no sense. */
export function secondsSince(time: string | null, now: number): number | null {
  const then = time === null ? NaN : Date.parse(time) / 1000;
  return Number.isFinite(then) && now - then > -60 ? Math.max(0, now - then) : null;
}

/** By this machine's clock, with its day where that is another one; `null`: it is no time. */
export function clockText(time: string | null): string | null {
  const at = new Date(time ?? NaN);
  if (Number.isNaN(at.getTime())) {
    return null;
  }
  const isToday = at.toDateString() === new Date().toDateString();
  const day = isToday ? {} : ({ day: 'numeric', month: 'short' } as const);
  return at.toLocaleString(undefined, { ...day, hour: '2-digit', minute: '2-digit' });
}

/** `1st`, `2nd`, `3rd`, `11th`. */
export function ordinal(number: number, trans: ITranslate): string {
  const tens = number % 100;
  const last = tens > 10 && tens < 14 ? 0 : number % 10;
  const words = [trans.__('%1th', number), trans.__('%1st', number), trans.__('%1nd', number)];
  words.push(trans.__('%1rd', number));
  return words[last] ?? words[0] ?? String(number);
}

/** `GPU 0`, `GPU 0 and GPU 1`. */
export function gpusText(gpus: readonly string[], trans: ITranslate): string {
  return gpus.reduce((all, gpu) => (all === '' ? gpu : trans.__('%1 and %2', all, gpu)), '');
}

/** The daemon says so of what its user, or the notebook itself, asked for: no news to them. */
const ASKED_FOR = /(^|: )(suspended|released) by its user$|process that looked after it has ended/;

export function askedFor(one: { readonly reason: string }): boolean {
  return ASKED_FOR.test(one.reason);
}

/** Where a workload is, without figures: what a screen reader is told when it changes. */
export function whereText(workload: IWorkload, trans: ITranslate): string {
  const gpus = gpusText(workload.gpus, trans);
  const { position } = workload;
  const stands = standingText(workload, trans);
  if (stands !== null) {
    return stands;
  }
  if (position !== null) {
    return trans.__('waiting for a GPU, %1 in queue', ordinal(position, trans));
  }
  switch (workload.phase) {
    case 'queued':
      return trans.__('waiting for a GPU');
    case 'starting':
      if (workload.moving) {
        return trans.__('moving to %1', gpus);
      }
      return workload.saved_bytes === null
        ? trans.__('starting on %1', gpus)
        : trans.__('coming back to %1', gpus);
    case 'running':
      if (!workload.yields) {
        return gpus;
      }
      return workload.executing
        ? trans.__('%1, leaves after this cell', gpus)
        : trans.__('%1, leaves soon', gpus);
    case 'suspending':
      return trans.__('leaving %1', gpus);
    case 'suspended':
      return workload.executing
        ? trans.__('waiting for a GPU')
        : trans.__('suspended, resumes on the next cell');
    case 'failed':
      return trans.__('GPU process failed');
  }
}

/** Since when its running cell stands still, and for whom; `null`: it does not. */
export function standingText(workload: IWorkload, trans: ITranslate): string | null {
  if (workload.frozen === null || workload.phase !== 'suspended') {
    return null;
  }
  const since = clockText(workload.frozen.since) ?? workload.frozen.since;
  return workload.frozen.for === null
    ? trans.__('its cell stands still since %1', since)
    : trans.__('its cell stands still since %1, for %2', since, workload.frozen.for);
}

/** The status bar's text for the current notebook; used, request and limit on all its GPUs: `GPU 0: 6.2 / 8 / 16 GiB, executing`. */
export function itemText(workload: IWorkload, units: Units, trans: ITranslate): string {
  const where = whereText(workload, trans);
  if (workload.phase !== 'running') {
    return where;
  }
  const { memory_used_bytes: used, request_bytes: request, limit_bytes: limit } = workload;
  const gpus = gpusOf(workload);
  const sizes = sizesText([used, gpus * request, gpus * limit], units);
  const activity = workload.executing ? trans.__('executing') : trans.__('idle');
  const burst = burstBytes(workload) > 0 ? trans.__('%1, burst', sizes) : sizes;
  return trans.__('%1: %2, %3', where, burst, activity);
}

/** The same in one sentence for people who hear it, with what each number means. */
export function itemSentence(workload: IWorkload, units: Units, trans: ITranslate): string {
  const figures = trans.__(
    '%1 used, %2 requested, limit %3',
    bytesText(workload.memory_used_bytes, units, trans),
    eachText(workload.request_bytes, workload, units, trans),
    eachText(workload.limit_bytes, workload, units, trans)
  );
  return trans.__('GPU of this notebook: %1; %2. Opens details.', whereText(workload, trans), figures);
}

/** What it uses above its request on each of its GPUs: may be taken back at any time. */
export function burstBytes(workload: IWorkload): number {
  const each = workload.memory_used_bytes / Math.max(1, workload.current.length);
  return workload.phase === 'running' ? Math.max(0, each - workload.request_bytes) : 0;
}

/** A sentence of the daemon's, part by part; as the daemon tells it where that is older. */
export function partsText(parts: IParts | null, english: string, trans: ITranslate): string {
  if (parts === null) {
    return english;
  }
  const words = parts.arguments.map(each => (typeof each === 'string' ? each : partsText(each, '', trans)));
  // Of a newer daemon: a template without a translation is English.
  return trans.__(parts.template, ...words);
}

/** Why a workload is where it is, or something happened. */
export function whyText(of: Pick<IEntry, 'reason' | 'reason_parts'>, trans: ITranslate): string {
  return partsText(of.reason_parts, of.reason, trans);
}

/** Why a GPU is out of service. */
export function unhealthyText(gpu: IGpu, trans: ITranslate): string {
  return partsText(gpu.unhealthy_parts, gpu.unhealthy_reason ?? '', trans);
}

/** Why it is where it is, with since when the one that holds its GPU has been there. */
export function reasonText(workload: IWorkload, now: number, trans: ITranslate): string {
  const since = causeSeconds(workload.cause, now);
  if (since === null || workload.cause === null) {
    return whyText(workload, trans);
  }
  return trans.__(
    '%1 (%2 is there for %3)',
    whyText(workload, trans),
    workload.cause.name,
    durationText(Math.floor(since), trans)
  );
}

function causeSeconds(cause: ICause | null, now: number): number | null {
  return cause === null ? null : secondsSince(cause.since ?? null, now);
}

/** One sentence about a GPU and who is on it. */
export function gpuSentence(
  gpu: IGpu,
  workloads: readonly IWorkload[],
  units: Units,
  trans: ITranslate
): string {
  const used = bytesText(gpu.memory_used_bytes, units, trans);
  const total = bytesText(gpu.memory_total_bytes, units, trans);
  const who = workloads.map(workload => workload.name).join(', ') || trans.__('nobody');
  const health = gpu.healthy ? '' : ` ${trans.__('Out of service: %1.', unhealthyText(gpu, trans))}`;
  const busy =
    gpu.utilisation === null ? '' : `, ${trans.__('%1 % busy', Math.round(gpu.utilisation * 100))}`;
  return trans.__('GPU %1: %2 of %3 used%4; held by %5.', gpu.index, used, total, busy, who) + health;
}

/** What happened, in one sentence: an entry of the history. */
export function entryText(entry: IEntry, units: Units, trans: ITranslate): string {
  const took = entry.seconds === null ? '' : durationText(entry.seconds, trans);
  const kept = entry.bytes === null ? '' : trans.__('%1 kept', bytesText(entry.bytes, units, trans));
  const details = [took, kept].filter(part => part !== '').join(', ');
  const lost = missingText(entry.missing.length, trans);
  const older = lostCellsText(entry.lost_cells, trans);
  const event = [eventText(entry, trans), lost, older].filter(part => part !== '').join(', ');
  const what = `${entry.name} ${event}: ${whyText(entry, trans)}`;
  return details === '' ? what : `${what} (${details})`;
}

/** Without what another entry says as well: whose GPU was given back on purpose has not lost its process. */
export function worthReading(history: readonly IEntry[]): IEntry[] {
  return history.filter((entry, place) => {
    const next = history[place + 1];
    const again =
      next?.workload === entry.workload && next.event === 'released' && next.reason === entry.reason;
    return entry.event !== 'exited' || !again;
  });
}

/** How many names did not come back; nothing where all did. */
function missingText(count: number, trans: ITranslate): string {
  if (count === 0) {
    return '';
  }
  return trans._n('one name missing', '%1 names missing', count);
}

/** Which completed cells are not in what came back; nothing where all are. */
function lostCellsText(cells: readonly string[], trans: ITranslate): string {
  const [first, last] = [cells[0], cells[cells.length - 1]];
  if (first === undefined || last === undefined) {
    return '';
  }
  return cells.length === 1
    ? trans.__('without cell %1', first)
    : trans._n('without %1 cell from %2 to %3', 'without %1 cells from %2 to %3', cells.length, first, last);
}

/** Whether it came back with less than there was. */
export function cameBackWithLess(entry: IEntry): boolean {
  return entry.missing.length > 0 || entry.lost_cells.length > 0;
}

function eventText(entry: IEntry, trans: ITranslate): string {
  const [from, to] = [entry.from ?? '', entry.to ?? ''];
  switch (entry.event) {
    case 'queued':
      return trans.__('waits for a GPU');
    case 'started':
      return trans.__('started on %1', to);
    case 'moved':
      return trans.__('moved from %1 to %2', from, to);
    case 'suspended':
      return trans.__('suspended, %1 is free', from);
    case 'resumed':
      return trans.__('is back on %1', to);
    case 'evicted':
      return trans.__('had to leave %1', from);
    case 'exited':
      return entry.kind === 'command'
        ? trans.__('ended on %1', from)
        : trans.__('lost its GPU process on %1', from);
    case 'failed':
      return trans.__('cannot be started any more');
    case 'start_failed':
      return trans.__('could not be started');
    case 'suspend_failed':
      return trans.__('could not be suspended');
    case 'frozen':
      return trans.__('stands still, %1 is free', from);
    case 'thawed':
      return trans.__('goes on on %1', to);
    case 'freeze_failed':
      return trans.__('could not be made to stand still');
    case 'thaw_failed':
      return trans.__('could not go on yet');
    case 'interrupted':
      return trans.__('was interrupted on %1', from);
    case 'released':
      return trans.__('asks for no GPU any more');
    case 'lost':
      return trans.__('ended with variables that are lost');
    case 'gpu_unhealthy':
      return trans.__('is out of service');
    case 'gpu_healthy':
      return trans.__('is in service again');
    default:
      return entry.event; // of a newer daemon: its own word is better than none
  }
}

/** Text of at most `length` characters; longer ones end in `…`. */
export function shortened(text: string, length: number): string {
  const characters = Array.from(text);
  return characters.length <= length
    ? text
    : `${characters
        .slice(0, length - 1)
        .join('')
        .trimEnd()}…`;
}

/** A name of at most `length` characters; longer ones lose their middle: copies differ at the end. */
export function shortenedName(name: string, length: number): string {
  const characters = Array.from(name);
  const head = Math.ceil((length - 1) / 2);
  return characters.length <= length
    ? name
    : `${characters.slice(0, head).join('')}…${characters.slice(characters.length - (length - 1 - head)).join('')}`;
}

/** The node in one sentence where there is nothing else to show; `null` where there is. */
export function nodeTrouble(model: INodeModel, trans: ITranslate): string | null {
  const { state, trouble } = model;
  if (trouble !== null || state === null) {
    return trouble;
  }
  if (!state.daemon.reachable) {
    return state.daemon.message ?? trans.__('The GPU scheduler of this node does not answer.');
  }
  return state.gpus.size > 0 ? null : (state.daemon.message ?? trans.__('This node has no GPU.'));
}
