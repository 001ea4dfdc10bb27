"""Pictures that are drawn at run time: their truths, and that no other picture is taken for one."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from PIL import Image

from sparkbuild.files import sha256_bytes
from sparkbuild.smoke.served import vision
from sparkbuild.smoke.served.book import ANSWERS, Book
from sparkbuild.smoke.served.load import FOLDER, load_suite
from sparkbuild.smoke.served.pictures import draw
from sparkbuild.smoke.served.suite import Picture, Vision
from sparkbuild.smoke.served.talk import Reply
from sparkbuild.smoke.served.words import Wrong

GLM = load_suite(FOLDER / "glm-5.3-flash.toml")
assert GLM.vision
LOOKS = {one.name: one for one in GLM.vision.looks}
DRAWN = draw(GLM.vision)


def opened(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def test_the_same_seed_draws_the_same_and_another_one_other_texts() -> None:
    assert GLM.vision
    assert draw(GLM.vision) == DRAWN
    other = draw(Vision(seed="x", alphabet=GLM.vision.alphabet, looks=GLM.vision.looks))
    assert other["small"][0].truth != DRAWN["small"][0].truth
    assert other["red"] == DRAWN["red"]


def test_every_text_is_of_the_alphabet_and_lies_within_its_picture() -> None:
    assert GLM.vision
    for name, look in LOOKS.items():
        for asked, drawn in zip(look.pictures, DRAWN[name], strict=True):
            assert len(drawn.truth) == asked.text
            assert set(drawn.truth) <= set(GLM.vision.alphabet)
            assert all(a != b for a, b in zip(drawn.truth, drawn.truth[1:], strict=False))
            image = opened(drawn.png)
            assert image.size == (asked.width, asked.height)
            paper = tuple(bytes.fromhex(asked.paper[1:]))
            rows = (0, asked.height - 1)
            edge = {image.getpixel((x, y)) for x in range(asked.width) for y in rows}
            assert edge == {paper}
            assert (len(image.getcolors(1 << 20) or ()) > 1) == bool(asked.text or asked.square)


def test_a_text_that_does_not_fit_is_drawn_smaller() -> None:
    asked = Picture(width=60, height=30, text=12, size=200)
    look = LOOKS["small"].__class__(
        name="x", group="x", ask="x", pictures=(asked,), count=1, reads=(0,)
    )
    ((drawn,),) = draw(Vision(seed="x", alphabet="ABCDEFGH", looks=(look,))).values()
    image = opened(drawn.png)
    assert {image.getpixel((x, y)) for x in (0, 59) for y in range(30)} == {(255, 255, 255)}


def test_a_square_is_where_it_is_said_to_be() -> None:
    image = opened(DRAWN["top left"][0].png)
    width, height = image.size
    assert image.getpixel((width // 8, height // 8)) == (224, 0, 0)
    assert image.getpixel((7 * width // 8, 7 * height // 8)) == (255, 255, 255)


def session(tmp_path: Path) -> Any:
    assert GLM.vision
    book = Book(tmp_path)
    vision.keep(book, GLM.vision, DRAWN)
    return SimpleNamespace(book=book, suite=GLM)


def test_a_picture_that_is_not_the_one_of_its_truth_is_not_shown(tmp_path: Path) -> None:
    one = session(tmp_path)
    look, drawn = LOOKS["both"], DRAWN["both"]
    parts = vision.content(one, look, drawn)
    assert isinstance(parts, list)
    assert [part["type"] for part in parts] == ["image_url", "image_url", "text"]
    (tmp_path / "pictures/both-2.png").write_bytes(DRAWN["small"][0].png)
    wrong = vision.content(one, look, drawn)
    assert isinstance(wrong, Wrong)
    assert wrong.group == "another picture"
    assert drawn[1].sha256 in wrong.text
    assert DRAWN["small"][0].sha256 in wrong.text


def test_answers_are_kept_with_pictures_by_their_digests(tmp_path: Path) -> None:
    book = Book(tmp_path)
    request = {"messages": [{"content": [{"image_url": {"url": "data:image/png;base64,AAAA"}}]}]}
    book.answer("a way", "a look", request, {"content": "red"})
    book.answer("a way", "another", {}, {})
    lines = (tmp_path / ANSWERS).read_text().splitlines()
    assert len(lines) == 2
    assert "AAAA" not in lines[0]
    assert sha256_bytes(b"data:image/png;base64,AAAA") in lines[0]
    assert [one.file for one in book.kept()] == [ANSWERS]
    assert book.kept()[0].sha256 == sha256_bytes((tmp_path / ANSWERS).read_bytes())


def verdict(tmp_path: Path, name: str, content: str) -> Wrong | None:
    reply = Reply(content=content, reasoning="", finish="stop", prompt_tokens=1, tokens=1)
    return vision.verdict(session(tmp_path), LOOKS[name], DRAWN[name], reply)


def test_clear_texts_are_read_whole_and_small_ones_nearly(tmp_path: Path) -> None:
    clear, small = DRAWN["large, dark on light"][0].truth, DRAWN["small"][0].truth
    assert verdict(tmp_path, "large, dark on light", clear) is None
    assert verdict(tmp_path, "large, dark on light", clear[:-1])
    assert verdict(tmp_path, "small", "..." + small[3:]) is None
    assert verdict(tmp_path, "small", small[4:])
    first, second = (one.truth for one in DRAWN["both"])
    assert verdict(tmp_path, "both", f"{first} {second}") is None
    swapped = verdict(tmp_path, "both", f"{second} {first}")
    assert swapped
    assert "characters wrong" in swapped.text
