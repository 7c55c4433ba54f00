"""Make all sizes of the root sign as wide as the smallest: python narrow_roots.py STIXTwoMath.woff2.

Chromium gives every root the width of the widest sign in the font. The difference shows as a gap after the root.
"""

import sys

from fontTools.ttLib import TTFont

font = TTFont(sys.argv[1])
root = font.getBestCmap()[ord("√")]
variants = font["MATH"].table.MathVariants
sizes = variants.VertGlyphConstruction[variants.VertGlyphCoverage.glyphs.index(root)]
glyphs = [record.VariantGlyph for record in sizes.MathGlyphVariantRecord]
glyphs += [part.glyph for part in sizes.GlyphAssembly.PartRecords]
width = font["hmtx"][root][0]
for name in set(glyphs):
    glyph, (advance, bearing) = font["glyf"][name], font["hmtx"][name]
    glyph.coordinates.scale((width / advance, 1))
    glyph.coordinates.toInt()
    glyph.recalcBounds(font["glyf"])
    font["hmtx"][name] = (width, round(bearing * width / advance))
font.save(sys.argv[1])
