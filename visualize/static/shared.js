// The tables that Python has too. Written by `python -m visualize.viewer.shared`; a test compares them.

/** @type {import("./types.d.ts").Shared} */
export const SHARED = {
  glyphs: {"pending": "○", "running": "▶", "waiting": "‖", "succeeded": "✓", "failed": "✗", "skipped": "–", "cancelled": "■", "paused": "‖", "partial": "◐"},
  statusOrder: ["running", "waiting", "failed", "succeeded", "cancelled", "skipped", "pending"],
  settled: ["failed", "succeeded", "cancelled", "skipped"],
  open: ["running", "waiting", "pending"],
  edgeStateOrder: ["taken", "undecided", "not_taken"],
  causes: {"not_selected": "not selected", "condition_false": "condition false", "upstream_skipped": "too few before it succeeded", "upstream_failed": "upstream failed", "error": "error", "cancelled": "cancelled"},
  parts: ["worked", "loading", "retried", "queued", "waited", "stopped"],
  tabShapes: {"running": "<path d='M5 3l9 5-9 5z'/>", "succeeded": "<path d='M3 9l4 4 7-10' fill='none' stroke-width='3'/>", "failed": "<path d='M3 3l10 10M13 3L3 13' fill='none' stroke-width='3'/>", "waiting": "<circle cx='8' cy='8' r='6' fill='none' stroke-width='3'/><circle cx='8' cy='8' r='2'/>", "": "<circle cx='8' cy='8' r='5'/>"},
  spacing: {"inRow": 24, "boxes": 24.0, "lane": 14.0, "rows": 52.0, "straight": 40.0, "sweeps": 4, "bends": 40000},
  corners: {"hexagon": [12.0, 0.3333333333333333], "diamond": [20.0, 0.5], "octagon": [8.0, 0.16666666666666666]},
  cornerSlack: {"hexagon": 18.0, "diamond": 18.0},
  mostBoxes: 2000,
  bundle: 100,
  lineHeight: 16,
  narrow: 276.0,
  pad: 40.0,
  maxName: 32,
  maxDetail: 40,
  folded: "M-9-9H9V9H-9ZM-5 0H5M0-5V5",
  unfolded: "M-9-9H9V9H-9ZM-5 0H5",
  longValue: 2000,
  mostCompared: 10,
};
