"""The site in headless Chromium, from files, without a network: on a desk and on a phone."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from sparkbuild import site_work
from sparkbuild.faults.model import Matrix
from sparkbuild.history.store import History
from sparkbuild.report.site.pages import fault_page

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.skipif(DRIVER is None, reason="chromium-driver is not installed"),
]

DESK, PHONE = (1280, 900), (390, 844)


def weeks_module() -> ModuleType:
    """The history that the unit tests read."""
    file = Path(__file__).parent.parent / "unit" / "history" / "conftest.py"
    spec = importlib.util.spec_from_file_location("history_weeks", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    made = weeks_module().fill(tmp_path_factory.mktemp("weeks") / "history")
    assert isinstance(made, History)
    return made


@pytest.fixture(scope="module")
def site(history: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "site"
    site_work.write(history, folder)
    return folder


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--hide-scrollbars"):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def look(
    chrome: Chrome, size: tuple[int, int], *, dark: bool = False, scripts: bool = True
) -> None:
    """Set the window, the colours and whether scripts run."""
    width, height = size
    chrome.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})


def ask(chrome: Chrome, script: str) -> Any:
    """What JavaScript of the test, not of the page, finds out."""
    result = chrome.execute_cdp_cmd("Runtime.evaluate", {"expression": script,
                                                         "returnByValue": True})  # fmt: skip
    return result["result"].get("value")


def open_page(chrome: Chrome, file: Path) -> None:
    """Load a page and see that the console stays empty and only files are loaded."""
    log: Callable[[str], list[dict[str, str]]] = chrome.get_log
    log("browser")
    log("performance")
    chrome.get(file.as_uri())
    assert log("browser") == [], file
    messages = [json.loads(one["message"])["message"] for one in log("performance")]
    asked = [
        one["params"]["request"]["url"]
        for one in messages
        if one["method"] == "Network.requestWillBeSent"
    ]
    assert any(url.startswith("file:") for url in asked)
    assert all(url.startswith(("file:", "data:")) for url in asked), asked


def kinds(site: Path, history: History) -> list[Path]:
    """A page of each kind, of a night and a run that failed."""
    failed = history.runs(state="failed")[0]
    return [
        site / name
        for name in (
            "index.html", "trends.html", "figures/1.html", "faults.html", "troubles.html",
            f"nights/{failed.night}.html", f"nights/{history.nights()[-1].id}.html",
            f"runs/{failed.id}.html", f"runs/{history.runs()[0].id}.html",
            f"{failed.evidence[0]}.html", f"{failed.report}.html",
        )
    ]  # fmt: skip


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_load_without_a_word_on_the_console_and_fit_the_screen(
    chrome: Chrome, site: Path, history: History, size: tuple[int, int], dark: bool
) -> None:
    look(chrome, size, dark=dark)
    papers = set()
    for file in kinds(site, history):
        open_page(chrome, file)
        assert ask(chrome, "document.documentElement.scrollWidth") <= size[0], file
        papers.add(ask(chrome, "getComputedStyle(document.body).backgroundColor"))
        assert ask(chrome, "document.querySelector('h1').getBoundingClientRect().height") > 0
    (paper,) = papers
    assert (sum(map(int, paper.strip("rgb()").split(","))) < 300) == dark


def test_charts_are_there_and_have_the_pages_colours(chrome: Chrome, site: Path) -> None:
    colours = []
    for dark in (False, True):
        look(chrome, DESK, dark=dark)
        open_page(chrome, site / "trends.html")
        sizes = ask(
            chrome,
            "[...document.querySelectorAll('figure svg')].map(e => [e.getBoundingClientRect()"
            ".width, e.getBoundingClientRect().height, e.querySelectorAll('a use').length])",
        )
        assert len(sizes) >= 20
        for width, height, points in sizes:
            assert width > 250
            assert height > 100
            assert points >= 20
        colours.append(
            ask(chrome, "getComputedStyle(document.querySelector('figure svg a use')).fill")
        )
    assert colours[0] != colours[1]
    look(chrome, PHONE)
    open_page(chrome, site / "trends.html")
    letters = ask(
        chrome,
        "Math.min(...[...document.querySelectorAll('figure svg text')].map(e => parseFloat("
        "getComputedStyle(e).fontSize) * e.ownerSVGElement.getBoundingClientRect().width / "
        "e.ownerSVGElement.viewBox.baseVal.width))",
    )
    assert letters >= 9


def test_a_red_night_is_two_clicks_from_its_log_on_a_phone(chrome: Chrome, site: Path) -> None:
    from selenium.webdriver.common.by import By

    look(chrome, PHONE)
    open_page(chrome, site / "index.html")
    red = chrome.find_elements(By.CSS_SELECTOR, ".days a.bad")
    assert len(red) == 2
    red[0].click()
    assert "/nights/" in chrome.current_url
    chrome.find_element(By.CSS_SELECTOR, "main table a[href*='evidence/']").click()
    shown = chrome.find_element(By.TAG_NAME, "pre").text
    assert shown.startswith("first line")
    assert "<script>alert(1)</script>" in shown
    assert "last line" in shown


def test_a_point_of_a_chart_leads_to_its_run(chrome: Chrome, site: Path) -> None:
    from selenium.webdriver.common.by import By

    look(chrome, DESK)
    open_page(chrome, site / "trends.html")
    point = chrome.find_elements(By.CSS_SELECTOR, "figure svg a use")[-1]
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", point)
    point.click()
    assert "/runs/" in chrome.current_url


def test_tables_need_no_javascript(chrome: Chrome, site: Path) -> None:
    from selenium.webdriver.common.by import By

    look(chrome, DESK, scripts=False)
    try:
        for name, rows in (("index.html", 4), ("faults.html", 12), ("trends.html", 100)):
            chrome.get((site / name).as_uri())
            assert len(chrome.find_elements(By.CSS_SELECTOR, "tbody tr")) >= rows
            assert chrome.find_element(By.CSS_SELECTOR, "tbody tr").get_attribute("innerHTML")
    finally:
        look(chrome, DESK)


def test_the_fault_page_stands_alone(chrome: Chrome, tmp_path: Path) -> None:
    import msgspec

    data = Path(__file__).parent.parent / "data" / "history" / "faults-cpu.json"
    file = tmp_path / "faults.html"
    file.write_text(fault_page(msgspec.json.decode(data.read_bytes(), type=Matrix)))
    for size in (DESK, PHONE):
        look(chrome, size)
        open_page(chrome, file)
        assert ask(chrome, "document.querySelectorAll('tbody tr').length") == 12
        assert (
            ask(chrome, "document.querySelector('figure svg').getBoundingClientRect().width") > 300
        )
        assert ask(chrome, "document.documentElement.scrollWidth") <= size[0]
