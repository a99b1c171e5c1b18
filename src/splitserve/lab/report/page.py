"""The style of the page: system fonts, readable on paper and without colour."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 74rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-bottom: 2px solid #1a1a1a; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { max-width: 60rem; margin: .5rem 0; }
.strong { font-weight: 700; border-left: 5px solid #1a1a1a; padding-left: .7rem; }
.verdict { font-size: 1.3rem; }
.meta, .detail, .note { color: #444; font-size: .8rem; }
.detail { display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-size: .87rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { border: 1px solid #bbb; padding: .28rem .5rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; min-width: 4rem; }
thead th { background: #eee; }
tbody th { font-weight: 600; }
td.figure { font-variant-numeric: tabular-nums; }
td.refused { font-style: italic; color: #444; }
nav ol { columns: 2; font-size: .9rem; }
a { color: #1f3a5f; }
figure { margin: 1rem 0; max-width: 42rem; break-inside: avoid; }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif; }
svg .title { font-size: 13px; font-weight: 600; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .onbar { text-anchor: middle; paint-order: stroke; stroke: #fff; stroke-width: 3px; }
svg .grid { stroke: #ddd; }
svg .axis { stroke: #1a1a1a; }
svg .limit { stroke: #1a1a1a; stroke-width: 1.5; }
svg .interval { stroke: #1a1a1a; stroke-width: 2; }
svg .band { fill: #e4e4e4; }
svg .prefill { fill: #777; fill-opacity: .45; }
svg .stem { stroke: #1f3a5f; stroke-width: 1.5; }
svg .part { stroke: #1a1a1a; stroke-width: .6; }
svg .curve { fill: none; stroke-width: 1.6; }
svg .mark { fill: #fff; fill-opacity: .75; stroke-width: 1.3; }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  tr, figure { break-inside: avoid; }
  .wide { overflow: visible; }
}
"""
