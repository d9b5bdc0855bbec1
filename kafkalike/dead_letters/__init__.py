"""Dead letters: records that could not be read, written to topics of their own, once each; shown and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalike.dead_letters.queue import DeadLetters as DeadLetters
    from kafkalike.dead_letters.queue import DeadLetterTopic as DeadLetterTopic
    from kafkalike.dead_letters.replay import Replay as Replay
    from kafkalike.dead_letters.stored import Filter as Filter
    from kafkalike.dead_letters.stored import StoredLetter as StoredLetter

_HOME = {
    "DeadLetterTopic": "kafkalike.dead_letters.queue",
    "DeadLetters": "kafkalike.dead_letters.queue",
    "Filter": "kafkalike.dead_letters.stored",
    "Replay": "kafkalike.dead_letters.replay",
    "StoredLetter": "kafkalike.dead_letters.stored",
}

__all__ = [  # noqa: PLE0604 - `__getattr__` gives the names
    *sorted(_HOME),
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
