"""`kafkalike sql-views`: a cluster in, the SQL statements that make its topics views out, for `spark-sql -i`."""

from __future__ import annotations

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, command_config_option, version_option


@click.command(
    epilog="Example: kafkalike sql-views > views.sql && "
    "SPARK_CONF_DIR=$(kafkalike conf-path) spark-sql -i views.sql -e 'SELECT * FROM kafkalike_lag'"
)
@bootstrap_option()
@command_config_option()
@version_option
@pass_environment
def sql_views(environment: Environment, /, *, bootstrap_server: str | None, command_config: str | None) -> None:
    """Print SQL that makes every topic a view, and kafkalike_topics, kafkalike_lag and others live tables.

    Views are temporary, and none is replaced: print them again to see topics created since. In a notebook,
    kafkalike.spark.register_sql does the same.
    """
    from kafkalike.spark.sql.topic_views import view_statements

    for statement in view_statements(environment.cluster_of(bootstrap_server, command_config)):
        click.echo(f"{statement};")
