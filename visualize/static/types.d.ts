// Shapes that the modules of the script share. Read by the checks alone: no page has this file.

export type Status = "pending" | "running" | "waiting" | "succeeded" | "failed" | "skipped" | "cancelled";
export type RunStatus = "running" | "succeeded" | "failed" | "waiting" | "paused" | "partial" | "cancelled";
export type EdgeState = "taken" | "undecided" | "not_taken";
export type Part = "worked" | "loading" | "retried" | "queued" | "waited" | "stopped";

/** What Python has too: `visualize/viewer/shared.py` makes it. */
export interface Shared {
  glyphs: Record<Status | RunStatus, string>;
  statusOrder: Status[];
  settled: Status[];
  open: Status[];
  edgeStateOrder: EdgeState[];
  causes: Record<string, string>;
  parts: Part[];
  tabShapes: Record<string, string>;
  spacing: { inRow: number; boxes: number; lane: number; rows: number; straight: number; sweeps: number; bends: number };
  corners: Record<string, [width: number, share: number]>;
  cornerSlack: Record<string, number>;
  mostBoxes: number;
  bundle: number;
  lineHeight: number;
  narrow: number;
  pad: number;
  maxName: number;
  maxDetail: number;
  folded: string;
  unfolded: string;
  longValue: number;
  mostCompared: number;
}

// --- what the server sends

/** A graph, as a journal has it. */
export interface GraphShape {
  nodes?: [id: string, kind: string, body?: GraphShape][];
  edges?: SiteEdge[];
  models?: Record<string, string>;
  most?: number;
}

/** An edge between two nodes of one level, by their names. */
export type SiteEdge = [source: string, target: string, labels: string[]];
/** An edge between two nodes of the drawing, by their numbers. */
export type DrawnEdge = [source: number, target: number, labels: string[]];
export type Size = [width: number, height: number];

/** The rule that merges what nodes write to a key of shared state, and the value at first. */
export type StateRules = Record<string, [rule: string, initial: unknown]>;

/** What a page of a run begins with: `visualize/viewer/run.py` makes it. */
export interface Head {
  run: string;
  graph: GraphShape;
  state: StateRules;
  drawn: string[];
  edges: DrawnEdge[];
  shut: number[];
  sizes: Size[];
  shapes: Record<string, string>;
  panels?: string;
  events?: string;
  times?: string;
  usual?: { seconds: Record<string, number>; runs: number } | null;
  /** Of a page that is one file: the nodes whose panels are in it. */
  list?: string[];
}

type Event<K extends string, Shape = object> = { kind: K; at: number; seq: number } & Shape;
type NodeEvent<K extends string, Shape = object> = Event<K, { node: string } & Shape>;
export type Call = NodeEvent<"call", {
  purpose: string; model: string; seconds: number; tokens?: number; cost?: number; error?: string;
}>;
export type Token = { kind: "token"; at: number; node: string; text: string; begins?: boolean; model?: string };

/** A line of the feed: `visualize/viewer/feed.py` says what each is. */
export type Line =
  | Event<"begin", { run: string; flow: string }>
  | Event<"resume">
  | Event<"end", { status: RunStatus; node?: string; error?: string }>
  | NodeEvent<"start">
  | NodeEvent<"finish", { output?: string; route?: string; state?: Record<string, unknown> }>
  | NodeEvent<"fail", { error: string; skipped?: boolean }>
  | NodeEvent<"skip", { cause: string; why?: string }>
  | NodeEvent<"cancel">
  | Call
  | NodeEvent<"tool", { name: string; seconds: number; failed?: boolean; begins?: boolean }>
  | NodeEvent<"retry", { attempt: number; error: string; delay: number }>
  | NodeEvent<"judged", { number: number; score?: number; passed: boolean }>
  | NodeEvent<"map", { total: number }>
  | NodeEvent<"map_stopped", { done: number; cancelled: number; left: number }>
  | NodeEvent<"round", { number: number; stopped: boolean; best?: string }>
  | NodeEvent<"asked", { message: string; choices: string[]; expires?: number }>
  | NodeEvent<"answered", { choice: string; by?: string }>
  | NodeEvent<"reused", { run: string }>
  | NodeEvent<"told", { text: string }>;
export type LineOf<K extends Line["kind"]> = Extract<Line, { kind: K }>;

type PlainSpan = [part: number, start: number, end: number, note?: string];
/** Where the time went: `visualize/run_times.py` makes it. */
export interface PlainTimes {
  begun: number;
  end: number;
  parts: Partial<Record<Part, number>>;
  breaks: PlainSpan[];
  rows: Record<string, [status: Status | "queued", spans: PlainSpan[], note: string][]>;
}

// --- a run, folded

export interface Level {
  sites: Map<string, Site>;
  containers: Container[];
  edges: SiteEdge[];
  most: number | null;
}

export interface Site {
  path: string;
  id: string;
  kind: string;
  parent: string | null;
  body: Level | null;
  model: string;
}

export type Container = Site & { body: Level };

/** Where a path leads: its site, and the container, the item or round that it ran in. */
export interface Spot {
  site: string;
  container: string | null;
  unit: string;
  number: number | null;
}

export interface Usage {
  calls: number;
  counted: number;
  priced: number;
  answered: number;
  tokens: number;
  cost: number;
}

/** One time that a node runs. */
export interface Row {
  id: string;
  spot: Spot;
  kind: string;
  status: Status;
  started: number | null;
  ended: number | null;
  usage: Usage;
  calls: Call[];
  retries: number;
  cause: string | null;
  error: string | null;
  route: string | null;
  output: string | null;
  state: Record<string, unknown> | null;
  total: number | null;
  units: Set<number>;
  inside: Partial<Record<Status, number>>;
  hasQuestion: boolean;
  hasAnswer: boolean;
  hasWaited: boolean;
}

/** The rows that decided how long a run took, and the steps between them. */
export interface CriticalPath {
  rows: Set<string>;
  steps: Set<string>;
}

export interface Span {
  part: Part;
  start: number;
  end: number;
  note: string;
}

/** An attempt or a resumption of a row. */
export interface Bar {
  status: Status | "queued";
  note: string;
  spans: Span[];
}

/** What a box says of a node. */
export interface NodeWords {
  status: Status;
  name: string;
  standing: string;
  detail: string;
  model: string;
  progress: [ended: number, failed: number] | null;
  seconds: number | null;
  cost: number | null;
  isCritical?: boolean;
  heat?: number | null;
}

// --- a drawing

export type Point = [x: number, y: number];

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Layout {
  boxes: Box[];
  paths: Point[][];
  width: number;
  height: number;
}

export type Arrangement = Layout & { open: Set<number> };

/** The place of a scene in its box. */
export interface View {
  x: number;
  y: number;
  scale: number;
}

/** A row of a list below the graph. */
export interface Item {
  key: string;
  class?: string;
  row?: Row;
  line?: Line;
}

export type MakeRow<T> = (item: T, element: HTMLElement) => void;
/** Items, what fills a row with one, and the head above them. */
export type RowSource<T> = [items: T[], make: MakeRow<T>, head?: HTMLElement];

/** What the palette offers. */
export interface Entry {
  kind: string;
  name: string;
  act: () => void;
}
