"""Settings: typed, frozen, and each one able to say where it came from.

`conf/headwater.toml` documents every key. Flags win over the environment, the environment over files.
"""

from headwater.config.load import LoadedSettings, Value, known_keys, load_settings
from headwater.config.settings import ClientSettings, JobSettings, Settings, SparkSettings, StackSettings
from headwater.config.shipped import shipped_dir

__all__ = [
    "ClientSettings",
    "JobSettings",
    "LoadedSettings",
    "Settings",
    "SparkSettings",
    "StackSettings",
    "Value",
    "known_keys",
    "load_settings",
    "shipped_dir",
]
