package kafkalike.spark;

import java.sql.Timestamp;
import java.time.Instant;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Function;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A batch of format("kafkalike"): one for each load(), as the offsets are those of its first query. */
public final class TopicBatch implements SupportsRead {
    final Function planner;
    final SparkSession spark;
    private final String description;
    private final StructType columns;

    /**
     * @param planner     Python's planner: JSON in, JSON out
     * @param description of the topics, in plans
     */
    public TopicBatch(Function planner, String description, SparkSession spark, StructType columns) {
        this.planner = planner;
        this.description = description;
        this.spark = spark;
        this.columns = columns;
    }

    public String name() {
        return "kafkalike";
    }

    public String toString() {
        return description;
    }

    public StructType schema() {
        return columns;
    }

    public Set capabilities() {
        return Collections.singleton(TableCapability.BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
        return new TopicQuery(this);
    }
}

/** The scan of one query over a batch: Spark tells it the columns and conditions, and the planner names the files. */
final class TopicQuery implements SupportsPushDownRequiredColumns, SupportsPushDownFilters, Scan, Batch {
    private final TopicBatch table;
    private StructType stored = new StructType();
    private StructType constants = new StructType();
    private Filter[] filters = new Filter[0];
    private InputPartition[] planned = new InputPartition[0];
    private boolean isWhole;

    TopicQuery(TopicBatch table) {
        this.table = table;
        pruneColumns(table.schema());
    }

    public void pruneColumns(StructType wanted) {
        stored = new StructType();
        constants = new StructType();
        Set names = new HashSet(Arrays.asList(wanted.fieldNames()));
        for (int n = 0; n < table.schema().fields().length; n++) {
            StructField field = table.schema().fields()[n];
            if (field.name().equals("topic") || field.name().equals("partition")) {
                constants = constants.add(field);
            } else if (names.contains(field.name()) || field.name().equals("offset")) {
                stored = stored.add(field);
            }
        }
    }

    /** The conditions only let files and row groups be skipped; Spark applies them to the rows. */
    public Filter[] pushFilters(Filter[] given) {
        filters = given;
        return given;
    }

    public Filter[] pushedFilters() {
        return filters;
    }

    public Scan build() {
        return this;
    }

    public StructType readSchema() {
        return ParquetFiles.columns(stored, constants);
    }

    public String description() {
        return table.toString();
    }

    public Batch toBatch() {
        return this;
    }

    public InputPartition[] planInputPartitions() {
        ArrayNode conditions = Answer.JSON.createArrayNode();
        for (int n = 0; n < filters.length; n++) {
            Filter filter = filters[n];
            if (filter instanceof GreaterThan) {
                add(conditions, ((GreaterThan) filter).attribute(), ">", ((GreaterThan) filter).value());
            } else if (filter instanceof GreaterThanOrEqual) {
                add(conditions, ((GreaterThanOrEqual) filter).attribute(), ">", ((GreaterThanOrEqual) filter).value());
            } else if (filter instanceof LessThan) {
                add(conditions, ((LessThan) filter).attribute(), "<", ((LessThan) filter).value());
            } else if (filter instanceof LessThanOrEqual) {
                add(conditions, ((LessThanOrEqual) filter).attribute(), "<", ((LessThanOrEqual) filter).value());
            } else if (filter instanceof EqualTo) {
                add(conditions, ((EqualTo) filter).attribute(), "=", ((EqualTo) filter).value());
            }
        }
        JsonNode tasks;
        try {
            tasks = Answer.field(Answer.ask(table.planner, "partitions", conditions.toString(), null), "tasks");
        } catch (IllegalStateException cause) {
            // PySpark has a class of its own for this one.
            throw new IllegalArgumentException("The batch cannot be planned: " + cause.getMessage());
        }
        planned = new InputPartition[tasks.size()];
        isWhole = true;
        for (int n = 0; n < planned.length; n++) {
            OffsetRanges ranges = new OffsetRanges(Answer.item(tasks, n));
            for (int at = 0; at < ranges.isCut.length; at++) {
                isWhole = isWhole && !ranges.isCut[at];
            }
            planned[n] = ranges;
        }
        return planned;
    }

    /** Bounds count as part of the range, as files need not be skipped exactly; times are in microseconds. */
    private static void add(ArrayNode conditions, String column, String sign, Object value) {
        long bound;
        if (value instanceof Integer || value instanceof Long) {
            bound = ((Number) value).longValue();
        } else if (value instanceof Timestamp) {
            bound = Math.multiplyExact(((Timestamp) value).getTime(), 1000L) + ((Timestamp) value).getNanos() / 1000 % 1000;
        } else if (value instanceof Instant) {
            bound = Math.multiplyExact(((Instant) value).getEpochSecond(), 1000000L) + ((Instant) value).getNano() / 1000;
        } else {
            return;
        }
        ObjectNode condition = conditions.addObject();
        condition.put("column", column);
        condition.put("sign", sign);
        condition.put("bound", bound);
    }

    public PartitionReaderFactory createReaderFactory() {
        // Spark has planned the partitions. Conditions would leave out records that are counted of files in part.
        ParquetPartitionReaderFactory files = ParquetFiles.factory(
                table.spark, stored, constants, isWhole ? filters : new Filter[0]);
        ParquetPartitionReaderFactory parts = isWhole ? files : ParquetFiles.factory(
                table.spark, stored, constants, TopicStream.filters(planned));
        return new OffsetRangesFactory(files, parts, stored.fieldIndex("offset"), !isWhole || !mayLeaveOutRows());
    }

    /** Return whether any condition may leave out some rows of a file, all of which have one topic and partition. */
    private boolean mayLeaveOutRows() {
        Set constant = new HashSet(Arrays.asList(constants.fieldNames()));
        for (int n = 0; n < filters.length; n++) {
            if (!constant.containsAll(Arrays.asList(filters[n].references()))) {
                return true;
            }
        }
        return false;
    }
}
