package kafkalike.spark;

import java.io.IOException;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.VariantExtraction;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScan;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.BinaryView;
import org.apache.spark.unsafe.types.UTF8String;

/** The files that one task reads, and the offsets to read of each. */
final class OffsetRanges implements InputPartition {
    final FilePartition[] files;
    final long[] from;
    final long[] until;
    final boolean[] isCut;
    /** Number of records in these offsets; -1 if it is not known, of a compacted file that is cut. */
    final long[] records;

    OffsetRanges(JsonNode ranges) {
        int count = ranges.size();
        files = new FilePartition[count];
        from = new long[count];
        until = new long[count];
        isCut = new boolean[count];
        records = new long[count];
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
            records[n] = Answer.field(range, "records").asLong();
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
        return new ColumnsReader(this, (OffsetRanges) partition);
    }

    public PartitionReader createReader(InputPartition partition) {
        return new RowsReader(this, (OffsetRanges) partition);
    }

    PartitionReader open(OffsetRanges ranges, int n, boolean isColumnar) {
        ParquetPartitionReaderFactory made = ranges.isCut[n] ? parts : files;
        return isColumnar ? made.createColumnarReader(ranges.files[n]) : made.createReader(ranges.files[n]);
    }

    /** All records of the file were read. */
    void checkCount(OffsetRanges ranges, int n, long found) {
        if (isCounted && ranges.records[n] >= 0 && found != ranges.records[n]) {
            throw corrupt(ranges, n, found + " records");
        }
    }

    /**
     * Offsets rise within their range. Together with the count this makes sure that a file without gaps has each offset
     * once.
     *
     * @param above the offset before, or one below it
     */
    void checkOffset(OffsetRanges ranges, int n, long above, long offset) {
        if (offset <= above || offset < ranges.from[n] || offset >= ranges.until[n]) {
            throw corrupt(ranges, n, "a row with the offset " + offset + " after " + above + " instead");
        }
    }

    private static IllegalStateException corrupt(OffsetRanges ranges, int n, String found) {
        return new IllegalStateException("kafkalike.errors.cluster_errors.CorruptRecordError: "
                + ranges.files[n].files()[0].filePath().urlEncoded() + " has " + found + " of the offsets ["
                + ranges.from[n] + ", " + ranges.until[n] + "); run `kafkalike verify`");
    }
}

/** Reads files one after the other; the offsets of a file rise. */
abstract class OffsetRangesReader implements PartitionReader {
    final OffsetRangesFactory factory;
    final OffsetRanges ranges;
    PartitionReader file;
    private final boolean isColumnar;
    private int next = 0;
    private long found;
    private long last;

    OffsetRangesReader(OffsetRangesFactory factory, OffsetRanges ranges, boolean isColumnar) {
        this.factory = factory;
        this.ranges = ranges;
        this.isColumnar = isColumnar;
    }

    /** Read the next rows of the open file within its range; false if there are no more. */
    abstract boolean read(int at) throws IOException;

    public boolean next() throws IOException {
        while (true) {
            if (file == null) {
                if (next == ranges.files.length) {
                    return false;
                }
                file = factory.open(ranges, next++, isColumnar);
                found = 0;
                last = -1;
            }
            if (read(next - 1)) {
                return true;
            }
            close();
            factory.checkCount(ranges, next - 1, found);
        }
    }

    /** Check a row that is to be given, and count it. */
    void take(long offset) {
        factory.checkOffset(ranges, next - 1, last, offset);
        last = offset;
        found++;
    }

    public void close() throws IOException {
        if (file != null) {
            file.close();
            file = null;
        }
    }
}

/** Reads batches of columns. */
final class ColumnsReader extends OffsetRangesReader {
    /** Whether the batch has the last row of its file to read; the file stays open for it. */
    private boolean isRead = false;
    private ColumnarBatch batch;

    ColumnsReader(OffsetRangesFactory factory, OffsetRanges ranges) {
        super(factory, ranges, true);
    }

    boolean read(int at) throws IOException {
        while (!isRead && file.next()) {
            batch = (ColumnarBatch) file.get();
            int begin = ranges.isCut[at] ? firstRow(ranges.from[at]) : 0;
            int end = ranges.isCut[at] ? firstRow(ranges.until[at]) : batch.numRows();
            isRead = end < batch.numRows();
            if (begin < end) {
                ColumnVector offsets = batch.column(factory.offset);
                for (int row = begin; row < end; row++) {
                    take(offsets.getLong(row));
                }
                cut(begin, end);
                return true;
            }
        }
        isRead = false;
        return false;
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
}

/** Reads rows. */
final class RowsReader extends OffsetRangesReader {
    private InternalRow row;

    RowsReader(OffsetRangesFactory factory, OffsetRanges ranges) {
        super(factory, ranges, false);
    }

    boolean read(int at) throws IOException {
        while (file.next()) {
            row = (InternalRow) file.get();
            long offset = row.getLong(factory.offset);
            if (ranges.isCut[at] && offset >= ranges.until[at]) {
                return false;
            }
            if (!ranges.isCut[at] || offset >= ranges.from[at]) {
                take(offset);
                return true;
            }
        }
        return false;
    }

    public Object get() {
        return row;
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

    /** The reader gives constants after the columns of the files. */
    static StructType columns(StructType stored, StructType constants) {
        StructType all = stored;
        for (int n = 0; n < constants.fields().length; n++) {
            all = all.add(constants.fields()[n]);
        }
        return all;
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
