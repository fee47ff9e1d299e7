"""Images of Pillow in a new process: their colors, what their files told of them, and what cells set."""

from __future__ import annotations

import pytest

from saved_state_processes import carried, carried_on
from saved_state_roundtrip import roundtrip

pytest.importorskip("PIL", reason="pip install pillow to check its images")


def test_the_colors_of_a_palette_are_as_transparent_as_they_were():
    before = (
        "from PIL import Image\nimage = Image.new('RGBA', (2, 2), (1, 2, 3, 50)).quantize(4)\ncolors = image.palette\n"
    )
    after = "assert image.convert('RGBA').getpixel((0, 0)) == (1, 2, 3, 50) and image.palette is colors\n"
    assert carried_on(before, after) == []


def test_what_a_file_tells_of_its_image_is_there(tmp_path):
    before = (
        f"import os\nos.chdir({str(tmp_path)!r})\n"
        "from PIL import Image, PngImagePlugin\n"
        "told = PngImagePlugin.PngInfo()\ntold.add_text('author', 'me')\n"
        "red = Image.new('RGB', (4, 4), 'red')\nred.note = ['mine']\n"
        "red.save('a.png', pnginfo=told), red.save('a.tif'), red.save('a.jpg'), red.save('a.icns')\n"
        "png, tif, jpg, icon = (Image.open(f'a.{kind}') for kind in ('png', 'tif', 'jpg', 'icns'))\n"
    )
    after = (
        "assert png.text == {'author': 'me'} and png.n_frames == tif.n_frames == 1 and tif.tag_v2[256] == 4\n"
        "assert len(jpg.quantization) == 2 and jpg.verify() is None and red.note == ['mine']\n"
        "assert icon.getextrema() == png.getextrema() == ((255, 255), (0, 0), (0, 0)) and icon.close() is None\n"
    )
    assert carried_on(before, after) == []


def test_one_of_several_frames_shows_its_own_and_that_it_has_no_others_is_named():
    result = roundtrip("""
import io
from PIL import Image
file = io.BytesIO()
Image.new("L", (4, 4), 7).save(file, "gif", save_all=True, append_images=[Image.new("L", (4, 4), 200)])
image = Image.open(file)
image.seek(1)
""")
    (changed,) = [each for each in result.manifest.changed if each.name == "image"]
    assert changed.change == "an image comes back without its file, as the frame that it shows"
    assert (result["image"].tell(), result["image"].convert("L").getpixel((0, 0))) == (1, 200)


def test_a_class_of_images_with_a_way_of_its_own_keeps_it():
    before = (
        "from PIL import Image\n"
        "class Mine(Image.Image):\n"
        "    def __getstate__(self): return 'gray'\n"
        "    def __setstate__(self, state): self.__dict__['told'] = state\n"
        "image = Mine()\n"
    )
    assert carried(before, "assert image.told == 'gray'\n") == []
