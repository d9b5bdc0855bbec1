package kafkalike.spark;

import java.io.File;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.runtime.SerializedOffset;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A stream of format("kafkalike"): Python plans it in the driver's process, and Spark's own Parquet reader reads the
 * files. kafkalike/spark/jvm/java_class.py compiles this file with Janino, which is part of Spark.
 */
public final class TopicStream
        implements SupportsRead, ScanBuilder, Scan, MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private static final int MOST_RANGES = 64;

    /** Milliseconds between two looks for the files of new commits, and most looks of one call of an idle query. */
    private static final long LOOK_MS = 10L;
    private static final int LOOKS = 10;
    /** A query is idle after this time without news. */
    private static final long IDLE_NANOS = 1000000000L;
    /** The next call comes sooner if the trigger has no interval and no other source waits. */
    private static final long NEXT_NANOS = 30000000L;
    /** Python looks that often, whatever files there are: logs are cleaned up, and tables repaired. */
    private static final long CHECK_NANOS = 2000000000L;

    private final Function planner;
    private final String description;
    private final StructType columns;
    private final ParquetPartitionReaderFactory files;
    private final ParquetOptions options;
    private final boolean hasGroup;
    private final List streams;
    private Offset latest;
    private Offset end;
    /** Figures of the progress at that offset, which is that of the batch. */
    private Map metrics;
    private Filter[] cut = new Filter[0];
    private String quiet;
    private File[] awaited = new File[0];
    private long quietSince;
    private long asked;
    private long looked;
    private boolean isBusy;
    private boolean isHanded;

    /**
     * @param planner     Python's planner: JSON in, JSON out
     * @param description of the source, in the progress of its query
     * @param stored      columns of the files, as they are read
     * @param constants   columns with one value for each file: topic and partition
     * @param hasGroup    whether Python commits the progress for a consumer group
     * @param streams     of the query, to which this one is added
     */
    public TopicStream(
            Function planner, String description, SparkSession spark, StructType stored, StructType constants,
            Boolean hasGroup, List streams) {
        this.planner = planner;
        this.description = description;
        this.hasGroup = hasGroup.booleanValue();
        this.streams = streams;
        streams.add(this);
        this.columns = ParquetFiles.columns(stored, constants);
        this.files = ParquetFiles.factory(spark, stored, constants, new Filter[0]);
        this.options = new ParquetOptions(PythonUtils.toScalaMap(ParquetFiles.options()), spark.sessionState().conf());
    }

    public String name() {
        return "kafkalike";
    }

    public StructType schema() {
        return columns;
    }

    public StructType readSchema() {
        return columns;
    }

    public Set capabilities() {
        return Collections.singleton(TableCapability.MICRO_BATCH_READ);
    }

    public Scan.ColumnarSupportMode columnarSupportMode() {
        return Scan.ColumnarSupportMode.PARTITION_DEFINED;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
        return this;
    }

    public Scan build() {
        return this;
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
        return this;
    }

    public String description() {
        return description;
    }

    public String toString() {
        return description;
    }

    public Offset initialOffset() {
        return offset(ask("initial", null, null), "offset");
    }

    public Offset deserializeOffset(String json) {
        return new SerializedOffset(json);
    }

    public ReadLimit getDefaultReadLimit() {
        JsonNode rows = Answer.field(ask("limit", null, null), "rows");
        return rows.isNull() ? ReadLimit.allAvailable() : ReadLimit.maxRows(rows.asLong());
    }

    public void prepareForTriggerAvailableNow() {
        ask("prepare", null, null);
    }

    public Offset latestOffset() {
        throw new UnsupportedOperationException("latestOffset without a limit");
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
        String from = start.json();
        if (from.equals(quiet) && !hasNews()) {
            return start;
        }
        String rows = limit instanceof ReadMaxRows ? String.valueOf(((ReadMaxRows) limit).maxRows()) : null;
        asked = System.nanoTime();
        JsonNode answer = ask("latest", from, rows);
        JsonNode files = Answer.field(answer, "awaited");
        if (files.size() > 0 && !from.equals(quiet)) {
            quietSince = asked;
        }
        quiet = files.size() > 0 ? from : null;
        awaited = new File[files.size()];
        for (int n = 0; n < awaited.length; n++) {
            awaited[n] = new File(Answer.item(files, n).asText());
        }
        latest = answer.hasNonNull("latest") ? offset(answer, "latest") : null;
        end = offset(answer, "offset");
        metrics = answer.hasNonNull("metrics") ? Answer.figures(Answer.field(answer, "metrics")) : null;
        return end;
    }

    /**
     * Return whether Python may find news. An idle query waits for them a while, because the rest of a trigger costs
     * more than a look. It does not after a batch, as another source may have more, nor if its trigger has an interval.
     * One stream waits for the files of all streams of its query: Spark asks the others next.
     */
    private boolean hasNews() {
        long now = System.nanoTime();
        int left = now - quietSince >= IDLE_NANOS && now - looked < NEXT_NANOS && !isBusy ? LOOKS : 1;
        isBusy = false;
        while (now - asked < CHECK_NANOS) {
            if (hasFile()) {
                return true;
            }
            looked = now;
            for (int n = 0; left > 1 && n < streams.size(); n++) {
                if (((TopicStream) streams.get(n)).hasFile()) {
                    return false;
                }
            }
            if (--left == 0) {
                return false;
            }
            try {
                Thread.sleep(LOOK_MS);
            } catch (InterruptedException cause) {
                // The query is stopped; Spark sees it at its next wait.
                Thread.currentThread().interrupt();
                return false;
            }
            now = System.nanoTime();
        }
        return true;
    }

    private boolean hasFile() {
        for (int n = 0; n < awaited.length; n++) {
            if (awaited[n].exists()) {
                return true;
            }
        }
        return false;
    }

    public Offset reportLatestOffset() {
        return latest;
    }

    public Map metrics(Optional consumed) {
        if (!consumed.isPresent()) {
            return new HashMap();
        }
        Offset at = (Offset) consumed.get();
        boolean isKnown = metrics != null && at.json().equals(end.json());
        return isKnown ? metrics : Answer.figures(ask("metrics", at.json(), null));
    }

    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        JsonNode answer = ask("partitions", start.json(), end.json());
        cut = new Filter[0];
        isHanded = answer.hasNonNull("rows");
        if (isHanded) {
            return new InputPartition[] {new HandedRows(Answer.field(answer, "rows").asText())};
        }
        JsonNode tasks = Answer.field(answer, "tasks");
        InputPartition[] planned = new InputPartition[tasks.size()];
        for (int n = 0; n < planned.length; n++) {
            planned[n] = new OffsetRanges(Answer.item(tasks, n));
        }
        cut = filters(planned);
        return planned;
    }

    public PartitionReaderFactory createReaderFactory() {
        // Spark has planned the partitions of the batch.
        if (isHanded) {
            return new HandedRowsFactory();
        }
        ParquetPartitionReaderFactory parts = cut.length == 0 ? files : new ParquetPartitionReaderFactory(
                files.sqlConf(), files.broadcastedConf(), files.dataSchema(), files.readDataSchema(),
                files.partitionSchema(), cut, files.aggregation(), options);
        return new OffsetRangesFactory(files, parts, files.readDataSchema().fieldIndex("offset"), true);
    }

    /** Offsets to read of the files that a batch reads in part, so that row groups and pages outside are skipped. */
    static Filter[] filters(InputPartition[] planned) {
        Set seen = new HashSet();
        Filter found = null;
        for (int n = 0; n < planned.length; n++) {
            OffsetRanges ranges = (OffsetRanges) planned[n];
            for (int at = 0; at < ranges.files.length; at++) {
                if (ranges.isCut[at] && seen.add(ranges.from[at] + "-" + ranges.until[at])) {
                    Filter part = new And(
                            new GreaterThanOrEqual("offset", Long.valueOf(ranges.from[at])),
                            new LessThan("offset", Long.valueOf(ranges.until[at])));
                    found = found == null ? part : new Or(found, part);
                }
            }
        }
        return found == null || seen.size() > MOST_RANGES ? new Filter[0] : new Filter[] {found};
    }

    /** Spark commits the last batch to all sources when it begins another one. */
    public void commit(Offset end) {
        isBusy = true;
        if (hasGroup) {
            ask("commit", end.json(), null);
        }
    }

    public void stop() {
        ask("stop", null, null);
    }

    private Offset offset(JsonNode answer, String name) {
        return new SerializedOffset(Answer.field(answer, name).asText());
    }

    private JsonNode ask(String call, String first, String second) {
        return Answer.ask(planner, call, first, second);
    }
}
