"""Which planter plants which seed."""

from __future__ import annotations

from typing import Any, Final

from sparkbuild.faults.contract import Planter
from sparkbuild.faults.model import (
    BinarySeed,
    CanarySeed,
    ModelSeed,
    ProjectSeed,
    RecipesSeed,
    Seed,
    ServerSeed,
    SourceSeed,
    ToolkitSeed,
    WheelSeed,
)
from sparkbuild.faults.seeds.binary import plant_binary
from sparkbuild.faults.seeds.canary import plant_canary
from sparkbuild.faults.seeds.model import plant_model
from sparkbuild.faults.seeds.project import plant_project
from sparkbuild.faults.seeds.recipes import plant_recipes
from sparkbuild.faults.seeds.server import plant_server
from sparkbuild.faults.seeds.source import plant_source
from sparkbuild.faults.seeds.toolkit import plant_toolkit
from sparkbuild.faults.seeds.wheel import plant_wheel

PLANTERS: Final[dict[type[Seed], Planter[Any]]] = {
    SourceSeed: plant_source,
    ToolkitSeed: plant_toolkit,
    ModelSeed: plant_model,
    ServerSeed: plant_server,
    RecipesSeed: plant_recipes,
    WheelSeed: plant_wheel,
    ProjectSeed: plant_project,
    BinarySeed: plant_binary,
    CanarySeed: plant_canary,
}
