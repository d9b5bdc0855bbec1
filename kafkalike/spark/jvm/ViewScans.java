package kafkalike.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SupportsSubquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.V2ScanRelationPushDown;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;

/** A rule of Spark's optimizer: views and tables USING kafkalike are read as load() reads. */
public final class ViewScans extends Rule {
    private final Function tables;

    /** @param tables Python's part: the options of a view in, a TopicBatch or null out */
    public ViewScans(Function tables) {
        this.tables = tables;
    }

    public TreeNode apply(TreeNode plan) {
        LogicalPlan made = replaced((LogicalPlan) plan, new HashMap());
        return made == plan ? made : V2ScanRelationPushDown.apply(made);
    }

    /** @param known the tables of this query, so that a view has the same offsets wherever it occurs */
    private LogicalPlan replaced(LogicalPlan node, Map known) {
        if (node instanceof DataSourceV2ScanRelation) {
            DataSourceV2Relation relation = ((DataSourceV2ScanRelation) node).relation();
            Table table = relation.table();
            if (!(table instanceof PythonTable) || !table.name().equals("kafkalike")) {
                return node;
            }
            if (!known.containsKey(table)) {
                known.put(table, Answer.call(tables, relation.options().asCaseSensitiveMap()));
            }
            TopicBatch made = (TopicBatch) known.get(table);
            // A view for inserts may have columns of its own.
            return made == null || !made.schema().equals(table.schema()) ? node : relation.copy(
                    made, relation.output(), relation.catalog(), relation.identifier(), relation.options(),
                    relation.timeTravelSpec());
        }
        if (node instanceof SupportsSubquery) {
            // DELETE, UPDATE and MERGE of a topic, which Spark refuses.
            return node;
        }
        List children = new ArrayList();
        boolean isSame = true;
        for (int n = 0; n < node.children().size(); n++) {
            LogicalPlan child = (LogicalPlan) node.children().apply(n);
            LogicalPlan made = replaced(child, known);
            isSame = isSame && made == child;
            children.add(made);
        }
        return isSame ? node : (LogicalPlan) node.withNewChildren(PythonUtils.toSeq(children));
    }
}
