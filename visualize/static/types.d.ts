// Shapes that the modules of the script share. Read by the checks alone: no page has this file.

/** What Python has too: `visualize/viewer/shared.py` makes it. */
export interface Shared {
  glyphs: Record<string, string>;
  statusOrder: string[];
  settled: string[];
  open: string[];
  edgeStateOrder: string[];
  causes: Record<string, string>;
  parts: string[];
  tabShapes: Record<string, string>;
  spacing: { inRow: number; boxes: number; lane: number; rows: number; straight: number; sweeps: number; bends: number };
  corners: Record<string, [number, number]>;
  cornerSlack: Record<string, number>;
  mostBoxes: number;
  bundle: number;
  lineHeight: number;
  maxName: number;
  maxDetail: number;
  folded: string;
  unfolded: string;
  longValue: number;
  mostCompared: number;
}
