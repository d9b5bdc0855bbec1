from kafkalike.admin.dead_letter_queue import DeadLetters as DeadLetters
from kafkalike.admin.dead_letter_queue import DeadLetterTopic as DeadLetterTopic
from kafkalike.admin.dead_letter_replay import Replay as Replay
from kafkalike.log.dead_letter_topic import Filter as Filter
from kafkalike.log.dead_letter_topic import StoredLetter as StoredLetter
