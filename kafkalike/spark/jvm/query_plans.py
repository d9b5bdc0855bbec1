"""Spark's logical plans in the JVM, for which PySpark has no names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkalike.spark.jvm.java_class import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHOOSING_NODES: Final = frozenset({"Project", "Aggregate"})
"""Nodes that name all columns that they need of the nodes below."""

PASSING_NODES: Final = frozenset({"Filter", "SubqueryAlias", "EventTimeWatermark"})
"""Nodes that have the columns of the node below."""

_CATALYST: Final = "org.apache.spark.sql.catalyst"


class QueryPlans:
    """Makes nodes of Spark's logical plans in a session's JVM.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no names for plans

    def with_children(self, node: Any, nodes: list[Any]) -> Any:  # noqa: ANN401
        """Return a node with other children."""
        return node.withNewChildren(self._seq(nodes))

    def with_leaves(self, plan: Any, replace: Callable[[Any, Any], Any], wanted: Any = None) -> Any:  # noqa: ANN401
        """Return a plan with other leaves; the same plan if none changes.

        Args:
            plan: the plan.
            replace: gets a leaf and the set of columns that the nodes above need, None for all columns. It returns
                the new leaf, or None for the same one.
            wanted: the set for the plan itself.
        """
        below = children(plan)
        if not below:
            found = replace(plan, wanted)
            return plan if found is None else found
        if plan.nodeName() in CHOOSING_NODES:
            wanted = plan.references()
        elif wanted is not None:
            wanted = getattr(wanted, "$plus$plus")(plan.references()) if plan.nodeName() in PASSING_NODES else None
        made = [self.with_leaves(child, replace, wanted) for child in below]
        same = all(new is old for new, old in zip(made, below, strict=True))
        return plan if same else self.with_children(plan, made)

    def project(self, columns: list[Any], plan: Any) -> Any:  # noqa: ANN401
        """Return a plan with these columns of another plan."""
        return java_class(f"{_CATALYST}.plans.logical.Project")(self._seq(columns), plan)

    def dataset(self, plan: Any) -> Any:  # noqa: ANN401
        """Return the JVM's dataset of a plan."""
        made = java_class("org.apache.spark.sql.classic.Dataset")
        return made.ofRows(self._spark._jsparkSession, plan)  # noqa: SLF001

    def _seq(self, items: list[Any]) -> Any:  # noqa: ANN401
        return self._jvm.PythonUtils.toSeq(items)


def children(node: Any) -> list[Any]:  # noqa: ANN401 - a node of Spark's plan
    """Return the children of a node."""
    found = node.children()
    return [found.apply(n) for n in range(found.size())]
