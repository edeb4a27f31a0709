"""The colour of each method in all pictures, by its name alone, and no colour twice."""

import colorsys
import zlib
from typing import Any

#: Methods of the experiments. The first seven colours are Okabe and Ito's; each other one is as far
#: from those before it as sRGB allows, neither pale nor dark.
_TABLE = """
none 000000  bn 0072B2  cwo D55E00  ln 009E73  lcw CC79A7  normprop 56B4E9  gn E69F00
vcl 8F00FF  cwo-centre-sphere 701068  wn 584000  cwn FF00EF  wn+gamma-decay 0000F7
pn+gamma-decay 00DF00  cwo-sphere FF0068  cwo-centre 970010  ws 9780FF  orthogonal 38289F
stiefel A7C79F  cwo-linear BF0097  cwo-none 006800  wn+mean-only-bn 877810  bn+lcw 785870
lcw-first-free FF87FF  ws-first-free 005058  cwn-first-free 87AF00  cwo-first-free 8048B7
tat 3868FF  wn+variance-only-bn FF9F8F  ws+gn C7AFEF  ws+bn 18DF97  edm2 C750FF  dyt AF8F78
sn 8787B7  pn B74068  dks 975028  normprop-batch 009700  rms 5820F7  derf 9F00C7  ngpt F76870
cwo-centre-tangent 483870  tat-normal 506838  hyperball 7858F7  agc 8F1850  nero 085087
adamp FF8010  sl D7AF80  cwo-sphere-noise 87D748  cwo-noise AF6868  cwo-centre-noise CF9FAF
cwo-angle CF18CF  cwo-step BF8010  bn+wn 105028  bn+cwn FF4000  bn+sn 1018BF  bn+sl 50BF97
normprop-exact 8FA7FF  bn+dropout 586097  wn+dropout C787EF
normalizer-free 00C8F0  moving-average 787800
"""

COLOURS = dict(zip(_TABLE.split()[::2], (f"#{code}" for code in _TABLE.split()[1::2]), strict=True))


def colour_of_method(name: str) -> str:
    """Returns the colour of a method; one that the table does not have gets a hue from its name."""
    hue = zlib.crc32(name.encode()) / 2**32
    red, green, blue = (round(255 * part) for part in colorsys.hls_to_rgb(hue, 0.42, 0.65))
    return COLOURS.get(name, f"#{red:02X}{green:02X}{blue:02X}")


def method_style(name: str) -> dict[str, Any]:
    """Returns the colour and dashes of a method's line: dashed for sums, dotted for variants."""
    dashes = "--" if "+" in name else ":" if "-" in name else "-"
    return {"color": colour_of_method(name), "linestyle": dashes}
