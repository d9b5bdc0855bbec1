"""No folder of the package is so large that nobody finds anything in it."""

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "kafkalike"

MOST_MODULES = 25


def test_no_folder_of_the_package_has_more_than_25_modules() -> None:
    """A package's own `__init__` is not counted. `make graph` says the same of the folders of the log."""
    folders = sorted({file.parent for file in PACKAGE.rglob("*.py")})
    sizes = {
        str(folder.relative_to(PACKAGE.parent)): sum(file.name != "__init__.py" for file in folder.glob("*.py"))
        for folder in folders
    }

    assert sizes["kafkalike/cli"] > 0
    assert {folder: size for folder, size in sizes.items() if size > MOST_MODULES} == {}
