package kafkalike.spark;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.sql.Timestamp;
import java.time.Instant;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.VariantExtraction;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScan;
import org.apache.spark.sql.execution.streaming.runtime.SerializedOffset;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.BinaryView;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A stream of format("kafkalike"): Python plans it in the driver's process, and Spark's own Parquet reader reads the
 * files. kafkalike/spark/reads/driver_stream.py compiles this file with Janino, which is part of Spark.
 */
public final class TopicStream
        implements SupportsRead, ScanBuilder, Scan, MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private static final int MOST_RANGES = 64;

    /** Milliseconds between two looks for the files of new commits, and most looks of one call of an idle query. */
    private static final long LOOK_MS = 10L;
    private static final int LOOKS = 10;
    /** A query is idle after this time without news. */
    private static final long IDLE_NANOS = 1000000000L;
    /** Python looks that often, whatever files there are: logs are cleaned up, and tables repaired. */
    private static final long CHECK_NANOS = 2000000000L;

    private final Function planner;
    private final String description;
    private final StructType columns;
    private final StructType constants;
    private final ParquetPartitionReaderFactory files;
    private final ParquetOptions options;
    private final boolean hasGroup;
    private Offset latest;
    private Offset end;
    /** Figures of the progress at that offset, which is that of the batch. */
    private Map metrics;
    private Filter[] cut = new Filter[0];
    private String quiet;
    private File[] awaited;
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
     */
    public TopicStream(
            Function planner, String description, SparkSession spark, StructType stored, StructType constants,
            Boolean hasGroup) {
        this.planner = planner;
        this.description = description;
        this.constants = constants;
        this.hasGroup = hasGroup.booleanValue();
        StructType all = stored;
        for (int n = 0; n < constants.fields().length; n++) {
            all = all.add(constants.fields()[n]);
        }
        this.columns = all;
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
        metrics = answer.hasNonNull("metrics") ? figures(Answer.field(answer, "metrics")) : null;
        return end;
    }

    /**
     * Return whether Python may find news. An idle query waits for them a while, because the rest of a trigger costs
     * more than a look. It does not after a batch, as another source may have more, nor if its trigger has an interval.
     */
    private boolean hasNews() {
        long now = System.nanoTime();
        int left = now - quietSince >= IDLE_NANOS && now - looked < IDLE_NANOS && !isBusy ? LOOKS : 1;
        isBusy = false;
        while (now - asked < CHECK_NANOS) {
            for (int n = 0; n < awaited.length; n++) {
                if (awaited[n].exists()) {
                    return true;
                }
            }
            looked = now;
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

    public Offset reportLatestOffset() {
        return latest;
    }

    public Map metrics(Optional consumed) {
        if (!consumed.isPresent()) {
            return new HashMap();
        }
        Offset at = (Offset) consumed.get();
        return metrics != null && at.json().equals(end.json()) ? metrics : figures(ask("metrics", at.json(), null));
    }

    private static Map figures(JsonNode answer) {
        Map found = new HashMap();
        Iterator fields = answer.fields();
        while (fields.hasNext()) {
            Map.Entry field = (Map.Entry) fields.next();
            found.put(field.getKey(), ((JsonNode) field.getValue()).asText());
        }
        return found;
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

/** Spark's reader of files that kafkalike wrote. */
final class ParquetFiles {
    /** Settings of the session must not make a query skip files, or read times in another calendar. */
    static Map options() {
        Map given = new HashMap();
        given.put("ignoreMissingFiles", "false");
        given.put("ignoreCorruptFiles", "false");
        given.put("datetimeRebaseMode", "CORRECTED");
        given.put("int96RebaseMode", "CORRECTED");
        return given;
    }

    static ParquetPartitionReaderFactory factory(
            SparkSession spark, StructType stored, StructType constants, Filter[] filters) {
        Configuration hadoop = spark.sessionState().newHadoopConf();
        hadoop.set("parquet.page.verify-checksum.enabled", "true");
        ParquetScan scan = new ParquetScan(
                spark, hadoop, null, stored, stored, constants, filters, new CaseInsensitiveStringMap(options()),
                scala.Option.empty(), PythonUtils.toSeq(Collections.emptyList()),
                PythonUtils.toSeq(Collections.emptyList()), new VariantExtraction[0]);
        return (ParquetPartitionReaderFactory) scan.createReaderFactory();
    }
}

/** Calls of the planner, and parts of its JSON; Janino takes Jackson's `get` for that of its base class. */
final class Answer {
    static final ObjectMapper JSON = new ObjectMapper();

    static JsonNode ask(Function planner, String call, String first, String second) {
        ObjectNode question = JSON.createObjectNode();
        question.put("call", call);
        question.put("first", first);
        question.put("second", second);
        JsonNode answer;
        try {
            answer = JSON.readTree((String) planner.apply(question.toString()));
        } catch (IOException cause) {
            throw new IllegalStateException(cause);
        }
        if (answer.has("error")) {
            throw new IllegalStateException(field(answer, "error").asText());
        }
        return answer;
    }

    static JsonNode field(JsonNode node, String name) {
        return (JsonNode) node.get(name);
    }

    static JsonNode item(JsonNode node, int at) {
        return (JsonNode) node.get(at);
    }
}

/** The files that one task reads, and the offsets to read of each. */
final class OffsetRanges implements InputPartition {
    final FilePartition[] files;
    final long[] from;
    final long[] until;
    final boolean[] isCut;
    final boolean[] isDense;

    OffsetRanges(JsonNode ranges) {
        int count = ranges.size();
        files = new FilePartition[count];
        from = new long[count];
        until = new long[count];
        isCut = new boolean[count];
        isDense = new boolean[count];
        for (int n = 0; n < count; n++) {
            JsonNode range = Answer.item(ranges, n);
            Object[] constants = {
                UTF8String.fromString(Answer.field(range, "topic").asText()), Integer.valueOf(Answer.field(range, "partition").asInt())
            };
            long size = Answer.field(range, "size").asLong();
            PartitionedFile file = new PartitionedFile(
                    new GenericInternalRow(constants), SparkPath.fromPathString(Answer.field(range, "path").asText()), 0L, size,
                    new String[0], 0L, size, PythonUtils.toScalaMap(new HashMap()));
            files[n] = new FilePartition(0, new PartitionedFile[] {file});
            from[n] = Answer.field(range, "from").asLong();
            until[n] = Answer.field(range, "until").asLong();
            isCut[n] = Answer.field(range, "cut").asBoolean();
            isDense[n] = Answer.field(range, "dense").asBoolean();
        }
    }
}

/** Makes the readers of tasks: of whole files, and of parts of files. */
final class OffsetRangesFactory implements PartitionReaderFactory {
    private final ParquetPartitionReaderFactory files;
    private final ParquetPartitionReaderFactory parts;
    private final boolean isCounted;
    final int offset;

    /** @param isCounted whether all records of the ranges are read: no filter leaves out row groups */
    OffsetRangesFactory(
            ParquetPartitionReaderFactory files, ParquetPartitionReaderFactory parts, int offset, boolean isCounted) {
        this.files = files;
        this.parts = parts;
        this.offset = offset;
        this.isCounted = isCounted;
    }

    public boolean supportColumnarReads(InputPartition partition) {
        return files.supportColumnarReads(partition);
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
        return new OffsetColumnsReader(this, (OffsetRanges) partition);
    }

    public PartitionReader createReader(InputPartition partition) {
        return new OffsetRangesReader(this, (OffsetRanges) partition);
    }

    PartitionReader open(OffsetRanges ranges, int n, boolean isColumnar) {
        ParquetPartitionReaderFactory made = ranges.isCut[n] ? parts : files;
        return isColumnar ? made.createColumnarReader(ranges.files[n]) : made.createReader(ranges.files[n]);
    }

    void check(OffsetRanges ranges, int n, long found) {
        if (isCounted && ranges.isDense[n] && found != ranges.until[n] - ranges.from[n]) {
            throw new IllegalStateException("kafkalike.errors.cluster_errors.CorruptRecordError: "
                    + ranges.files[n].files()[0].filePath().urlEncoded() + " has " + found + " records of the offsets ["
                    + ranges.from[n] + ", " + ranges.until[n] + "); run `kafkalike verify`");
        }
    }
}

/** Reads files one after the other in batches of columns; the offsets of a file rise. */
final class OffsetColumnsReader implements PartitionReader {
    private final OffsetRangesFactory factory;
    private final OffsetRanges ranges;
    private int next = 0;
    private long found = 0;
    /** Whether the batch has the last row to read; the file stays open for it. */
    private boolean isRead = false;
    private PartitionReader file;
    private ColumnarBatch batch;

    OffsetColumnsReader(OffsetRangesFactory factory, OffsetRanges ranges) {
        this.factory = factory;
        this.ranges = ranges;
    }

    public boolean next() throws IOException {
        while (true) {
            if (file == null) {
                if (next == ranges.files.length) {
                    return false;
                }
                file = factory.open(ranges, next++, true);
                found = 0;
                isRead = false;
            }
            int at = next - 1;
            while (!isRead && file.next()) {
                batch = (ColumnarBatch) file.get();
                int rows = batch.numRows();
                int begin = ranges.isCut[at] ? firstRow(ranges.from[at]) : 0;
                int end = ranges.isCut[at] ? firstRow(ranges.until[at]) : rows;
                isRead = end < rows;
                if (begin < end) {
                    found += end - begin;
                    cut(begin, end);
                    return true;
                }
            }
            close();
            factory.check(ranges, at, found);
        }
    }

    /** The first row of the batch whose offset is not below another one. */
    private int firstRow(long offset) {
        int low = 0;
        int high = batch.numRows();
        while (low < high) {
            int middle = (low + high) / 2;
            if (batch.column(factory.offset).getLong(middle) < offset) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    private void cut(int begin, int end) {
        if (begin == 0) {
            batch.setNumRows(end);
            return;
        }
        ColumnVector[] columns = new ColumnVector[batch.numCols()];
        for (int n = 0; n < columns.length; n++) {
            columns[n] = new LaterRows(batch.column(n), begin);
        }
        batch = new ColumnarBatch(columns, end - begin);
    }

    public Object get() {
        return batch;
    }

    public void close() throws IOException {
        if (file != null) {
            file.close();
            file = null;
        }
    }
}

/** The rows of a column from one of them on; the column stays its reader's. */
final class LaterRows extends ColumnVector {
    private final ColumnVector column;
    private final int begin;

    LaterRows(ColumnVector column, int begin) {
        super(column.dataType());
        this.column = column;
        this.begin = begin;
    }

    public void close() {
    }

    public void closeIfFreeable() {
    }

    public boolean hasNull() {
        return column.hasNull();
    }

    public int numNulls() {
        return column.numNulls();
    }

    public boolean isNullAt(int row) {
        return column.isNullAt(begin + row);
    }

    public boolean getBoolean(int row) {
        return column.getBoolean(begin + row);
    }

    public byte getByte(int row) {
        return column.getByte(begin + row);
    }

    public short getShort(int row) {
        return column.getShort(begin + row);
    }

    public int getInt(int row) {
        return column.getInt(begin + row);
    }

    public long getLong(int row) {
        return column.getLong(begin + row);
    }

    public float getFloat(int row) {
        return column.getFloat(begin + row);
    }

    public double getDouble(int row) {
        return column.getDouble(begin + row);
    }

    public ColumnarArray getArray(int row) {
        return column.getArray(begin + row);
    }

    public ColumnarMap getMap(int row) {
        return column.getMap(begin + row);
    }

    public Decimal getDecimal(int row, int precision, int scale) {
        return column.getDecimal(begin + row, precision, scale);
    }

    public UTF8String getUTF8String(int row) {
        return column.getUTF8String(begin + row);
    }

    public byte[] getBinary(int row) {
        return column.getBinary(begin + row);
    }

    public BinaryView getBinaryView(int row) {
        return column.getBinaryView(begin + row);
    }

    public ColumnVector getChild(int ordinal) {
        return new LaterRows(column.getChild(ordinal), begin);
    }
}

/** Reads files one after the other; the offsets of a file rise. */
final class OffsetRangesReader implements PartitionReader {
    private final OffsetRangesFactory factory;
    private final OffsetRanges ranges;
    private int next = 0;
    private long found = 0;
    private PartitionReader file;
    private InternalRow row;

    OffsetRangesReader(OffsetRangesFactory factory, OffsetRanges ranges) {
        this.factory = factory;
        this.ranges = ranges;
    }

    public boolean next() throws IOException {
        while (true) {
            if (file == null) {
                if (next == ranges.files.length) {
                    return false;
                }
                file = factory.open(ranges, next++, false);
                found = 0;
            }
            long from = ranges.from[next - 1];
            long until = ranges.until[next - 1];
            while (file.next()) {
                row = (InternalRow) file.get();
                long at = row.getLong(factory.offset);
                if (at >= until) {
                    break;
                }
                if (at >= from) {
                    found++;
                    return true;
                }
            }
            close();
            factory.check(ranges, next - 1, found);
        }
    }

    public Object get() {
        return row;
    }

    public void close() throws IOException {
        if (file != null) {
            file.close();
            file = null;
        }
    }
}

/** A small batch that the planner has read: an Arrow file, for a task in the driver's JVM. */
final class HandedRows implements InputPartition {
    final String file;

    HandedRows(String file) {
        this.file = file;
    }
}

/** Makes the reader of a small batch, whose task gets none of the session's settings. */
final class HandedRowsFactory implements PartitionReaderFactory {
    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }

    public PartitionReader createReader(InputPartition partition) {
        throw new UnsupportedOperationException("rows of a batch of columns");
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
        return new HandedRowsReader(((HandedRows) partition).file);
    }
}

/** Reads an Arrow file in batches of columns. */
final class HandedRowsReader implements PartitionReader {
    private final String file;
    private BufferAllocator memory;
    private ArrowStreamReader stream;
    private ColumnVector[] columns;

    HandedRowsReader(String file) {
        this.file = file;
    }

    public boolean next() throws IOException {
        if (stream == null) {
            memory = ArrowUtils.rootAllocator().newChildAllocator("kafkalike " + file, 0L, Long.MAX_VALUE);
            stream = new ArrowStreamReader(new FileInputStream(file), memory);
            VectorSchemaRoot vectors = stream.getVectorSchemaRoot();
            columns = new ColumnVector[vectors.getFieldVectors().size()];
            for (int n = 0; n < columns.length; n++) {
                columns[n] = new LaterRows(new ArrowColumnVector(vectors.getVector(n)), 0);
            }
        }
        return stream.loadNextBatch();
    }

    public Object get() throws IOException {
        return new ColumnarBatch(columns, stream.getVectorSchemaRoot().getRowCount());
    }

    public void close() throws IOException {
        if (stream != null) {
            stream.close();
            stream = null;
            memory.close();
        }
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
        StructType all = stored;
        for (int n = 0; n < constants.fields().length; n++) {
            all = all.add(constants.fields()[n]);
        }
        return all;
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
        return new OffsetRangesFactory(files, parts, stored.fieldIndex("offset"), !isWhole || filters.length == 0);
    }
}
