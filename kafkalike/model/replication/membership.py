"""Membership: a registration and what happened in, the next registration out. The controller takes no other steps.

The order of those that stay never changes, and nobody comes back before its leaving is in the log: so of any two
replicas in sync, the one that comes first in the chain has all that the other one has.
"""

from __future__ import annotations

from kafkalike.model.replication.values import Loss, NoReplicaLeftError, Registration, Replica


def without(registration: Registration, replica: Replica) -> Registration:
    """Take a replica out: it has failed, or is to be moved.

    If it is the leader, its predecessor follows: whatever the old leader showed, that one has. One that is joining goes
    too, and begins anew: who decides would otherwise depend on how far it had come.

    Args:
        registration: as it is; the replica is in its chain.
        replica: which one.

    Raises:
        NoReplicaLeftError: no other one is in sync.
    """
    left = tuple(other for other in registration.in_sync if other != replica)
    if not left:
        raise NoReplicaLeftError
    return registration._replace(epoch=registration.epoch + 1, chain=left, joining=None)


def with_joining(registration: Registration, broker: int, *, leads: bool = False) -> Registration:
    """Let a broker's replica in that has caught up: from the seal on it must be written, too.

    It comes before the leader, which stays the leader then; or last, if it is to lead. Beside a single replica it comes
    last, too: the single one decides the seal, and as the last one it would publish it before the new one has it.

    Args:
        registration: as it is: it is in force, and nobody is joining.
        broker: not in the chain.
        leads: whether it is to be the leader.
    """
    joining = registration.name(broker)
    chain = registration.chain
    last = leads or len(chain) == 1
    chain = (*chain, joining) if last else (*chain[:-1], joining, chain[-1])
    return registration._replace(epoch=registration.epoch + 1, chain=chain, joining=joining)


def named_anew(registration: Registration, broker: int, life: int) -> Registration:
    """Never let a broker's replica back under the name that it had: then its files may be removed, however late.

    Args:
        registration: as it is; the broker is not in its chain.
        broker: whose replica.
        life: the next one's; nobody else has it.
    """
    others = tuple(replica for replica in registration.renamed if replica.broker != broker)
    return registration._replace(renamed=(*others, Replica(broker, life)))


def confirmed(registration: Registration) -> Registration:
    """The one that was joining has the seal of this epoch: it is in sync now."""
    return registration._replace(joining=None)


def chosen_unclean(registration: Registration, replica: Replica, kept: int, files: int = 0) -> Registration:
    """Make a replica the leader that may lack acknowledged records, as nobody in sync can be reached.

    All others must be made anew before they come back: their logs, and checkpoints, may say something else.

    Args:
        registration: as it is.
        replica: the one with the longest log of those that can be reached, copied under a life of its own.
        kept: its log end, a version.
        files: how many data files its log names that are lost.
    """
    epoch = registration.epoch + 1
    loss = Loss(epoch, replica, kept, registration.chain, files)
    return Registration(epoch, (replica,), None, replica.life, (*registration.losses, loss))
