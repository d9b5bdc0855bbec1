"""Dead letters: records that could not be read, written to topics of their own, once each; shown and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.model.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalike.admin.dead_letters.queue import DeadLetters as DeadLetters
    from kafkalike.admin.dead_letters.queue import DeadLetterTopic as DeadLetterTopic
    from kafkalike.admin.dead_letters.replay import Replay as Replay
    from kafkalike.log.dead_letters.stored import Filter as Filter
    from kafkalike.log.dead_letters.stored import StoredLetter as StoredLetter

_HOME = {
    "DeadLetterTopic": "kafkalike.admin.dead_letters.queue",
    "DeadLetters": "kafkalike.admin.dead_letters.queue",
    "Filter": "kafkalike.log.dead_letters.stored",
    "Replay": "kafkalike.admin.dead_letters.replay",
    "StoredLetter": "kafkalike.log.dead_letters.stored",
}

__all__ = [  # noqa: PLE0604 - `__getattr__` gives the names
    *sorted(_HOME),
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
