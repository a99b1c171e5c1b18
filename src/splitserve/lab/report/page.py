"""The style of the page: system fonts, readable on paper, at night and without colour."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --soft: #444; --line: #bbb;
  --head: #eee; --band: #e4e4e4; --grid: #ddd; --link: #1f3a5f;
  --s0: #1f3a5f; --s1: #b3541e; --s2: #4d7a3a; --s3: #6b4a86; --s4: #555; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181b; --soft: #b4b4b4;
  --line: #555; --head: #26292e; --band: #33373d; --grid: #303338; --link: #9dc1ee;
  --s0: #9dc1ee; --s1: #f0a06c; --s2: #9ccf86; --s3: #c9a8e6; --s4: #bbb; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 76rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-bottom: 2px solid var(--ink); }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p, li { max-width: 60rem; }
p { margin: .5rem 0; }
.strong { font-weight: 700; border-left: 5px solid var(--ink); padding-left: .7rem; }
.verdict { font-size: 1.3rem; }
.meta, .detail, .note { color: var(--soft); font-size: .8rem; }
.meta { overflow-wrap: anywhere; }
.detail { display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-size: .87rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { border: 1px solid var(--line); padding: .28rem .5rem; text-align: left;
  vertical-align: top; }
td { overflow-wrap: break-word; min-width: 5rem; }
td:has(ul) { min-width: 15rem; }
td ul { margin: 0; padding: 0; list-style: none; }
td li + li { margin-top: .15rem; }
thead th { background: var(--head); }
tbody th { font-weight: 600; }
td.figure { font-variant-numeric: tabular-nums; }
td.refused { font-style: italic; color: var(--soft); }
details { margin: .5rem 0; }
summary { font-size: .87rem; font-weight: 600; padding: .3rem 0; cursor: pointer; }
nav ol { columns: 2; font-size: .9rem; }
a { color: var(--link); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr));
  gap: 1rem 2rem; margin: 1rem 0; align-items: start; }
figure { margin: 0; max-width: 42rem; break-inside: avoid; overflow-x: auto; }
svg { width: 100%; min-width: 33rem; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); }
svg .title { font-size: 13px; font-weight: 600; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .onbar { text-anchor: middle; fill: #1a1a1a; paint-order: stroke; stroke: #fff;
  stroke-width: 3px; }
svg .grid { stroke: var(--grid); }
svg .axis { stroke: var(--ink); }
svg .limit { stroke: var(--ink); stroke-width: 1.5; }
svg .interval { stroke: var(--ink); stroke-width: 2; }
svg .band { fill: var(--band); }
svg .prefill { fill: #888; fill-opacity: .5; }
svg .stem { stroke: var(--s0); stroke-width: 1.5; }
svg .part { stroke: var(--ink); stroke-width: .6; }
svg .tile { stroke: var(--ink); stroke-width: .6; fill: var(--ink); }
svg .curve { fill: none; stroke-width: 1.6; }
svg .mark { fill: var(--paper); fill-opacity: .75; stroke-width: 1.3; }
svg .s0 { stroke: var(--s0); } svg .s1 { stroke: var(--s1); } svg .s2 { stroke: var(--s2); }
svg .s3 { stroke: var(--s3); } svg .s4 { stroke: var(--s4); }
@media (max-width: 40rem) {
  body { padding: .8rem; }
  nav ol { columns: 1; }
  td { overflow-wrap: anywhere; min-width: 4rem; }
  td:has(ul) { min-width: 10rem; }
}
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #333; --line: #999;
    --head: #eee; --band: #e4e4e4; --grid: #ddd; --link: #000;
    --s0: #1f3a5f; --s1: #b3541e; --s2: #4d7a3a; --s3: #6b4a86; --s4: #555; }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  nav { display: none; }
  tr, figure { break-inside: avoid; }
  h2, h3, caption, summary { break-after: avoid; }
  .wide, figure { overflow: visible; }
  .plots { grid-template-columns: 1fr 1fr; gap: .5rem; }
  svg { min-width: 0; }
  td, td:has(ul) { min-width: 0; overflow-wrap: anywhere; }
  thead { break-after: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""
