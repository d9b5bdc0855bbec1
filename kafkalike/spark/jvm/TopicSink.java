package kafkalike.spark;

import java.io.BufferedOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/**
 * The sink of a stream of format("kafkalike"): tasks write their rows into Arrow files, which Python commits in the
 * driver's process. kafkalike/spark/jvm/java_class.py compiles this file with Janino, which is part of Spark.
 */
public final class TopicSink implements SupportsWrite, SupportsTruncate, Write, StreamingWrite, ReportsSinkMetrics {
    private final Function committer;
    private final String description;
    private final int rowsOfBatch;
    private String queryId;
    private StructType columns;
    private Map metrics = new HashMap();

    /**
     * @param committer   Python's part: JSON in, JSON out
     * @param description of the sink, in the progress of its query
     * @param rowsOfBatch most rows of an Arrow batch
     */
    public TopicSink(Function committer, String description, Integer rowsOfBatch) {
        this.committer = committer;
        this.description = description;
        this.rowsOfBatch = rowsOfBatch.intValue();
    }

    public String name() {
        return "kafkalike";
    }

    public String description() {
        return description;
    }

    public String toString() {
        return description;
    }

    public StructType schema() {
        return new StructType();
    }

    public Set capabilities() {
        Set found = new HashSet();
        found.add(TableCapability.STREAMING_WRITE);
        found.add(TableCapability.TRUNCATE);
        return found;
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        queryId = info.queryId();
        columns = info.schema();
        return this;
    }

    /** In complete mode each batch's result is added, as with Spark's Kafka sink. */
    public WriteBuilder truncate() {
        return this;
    }

    public Write build() {
        return this;
    }

    public StreamingWrite toStreaming() {
        return this;
    }

    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
        String folder = Answer.field(Answer.ask(committer, "begin", null, null), "folder").asText();
        return new ArrowFiles(folder, columns, rowsOfBatch);
    }

    public boolean useCommitCoordinator() {
        return true;
    }

    public void commit(long batch, WriterCommitMessage[] messages) {
        ObjectNode given = Answer.JSON.createObjectNode();
        given.put("query", queryId);
        ArrayNode files = given.putArray("files");
        for (int n = 0; n < messages.length; n++) {
            byte[] message = ((PythonWriterCommitMessage) messages[n]).pickledMessage();
            String[] file = new String(message, StandardCharsets.UTF_8).split("/", 3);
            if (!file[1].equals("0")) {
                ObjectNode known = files.addObject();
                known.put("task", Integer.parseInt(file[0]));
                known.put("rows", Long.parseLong(file[1]));
                known.put("name", file[2]);
            }
        }
        JsonNode answer = Answer.ask(committer, "commit", given.toString(), String.valueOf(batch));
        metrics = Answer.figures(Answer.field(answer, "metrics"));
    }

    public void abort(long batch, WriterCommitMessage[] messages) {
        Answer.ask(committer, "abort", null, null);
    }

    public Map metrics() {
        return metrics;
    }
}

/** Makes the writers of tasks. */
final class ArrowFiles implements StreamingDataWriterFactory {
    private final String folder;
    private final StructType columns;
    private final int rowsOfBatch;

    ArrowFiles(String folder, StructType columns, int rowsOfBatch) {
        this.folder = folder;
        this.columns = columns;
        this.rowsOfBatch = rowsOfBatch;
    }

    public DataWriter createWriter(int task, long attempt, long batch) {
        return new ArrowFileWriter(new File(folder, "rows-" + task + "-" + attempt + ".arrow"), task, columns, rowsOfBatch);
    }
}

/** Writes the rows of a task as an Arrow stream. */
final class ArrowFileWriter implements DataWriter {
    private static final long BYTES_OF_BATCH = 64L * 1024 * 1024;
    private static final int BUFFER = 1024 * 1024;

    private final File file;
    private final int task;
    private final StructType columns;
    private final int rowsOfBatch;
    private BufferAllocator memory;
    private VectorSchemaRoot vectors;
    private ArrowWriter rows;
    private ArrowStreamWriter stream;
    private int held = 0;
    private long bytes = 0;
    private long written = 0;

    ArrowFileWriter(File file, int task, StructType columns, int rowsOfBatch) {
        this.file = file;
        this.task = task;
        this.columns = columns;
        this.rowsOfBatch = rowsOfBatch;
    }

    public void write(Object row) throws IOException {
        if (stream == null) {
            open();
        }
        rows.write((InternalRow) row);
        held++;
        // To add up the buffers of the vectors takes as long as a small row.
        bytes = row instanceof UnsafeRow ? bytes + ((UnsafeRow) row).getSizeInBytes() : rows.sizeInBytes();
        if (held == rowsOfBatch || bytes >= BYTES_OF_BATCH) {
            flush();
        }
    }

    private void open() throws IOException {
        memory = ArrowUtils.rootAllocator().newChildAllocator("kafkalike " + file, 0L, Long.MAX_VALUE);
        vectors = VectorSchemaRoot.create(ArrowUtils.toArrowSchema(columns, "UTC", true, false), memory);
        rows = ArrowWriter.create(vectors);
        BufferedOutputStream out = new BufferedOutputStream(new FileOutputStream(file), BUFFER);
        stream = new ArrowStreamWriter(vectors, null, out);
        stream.start();
    }

    private void flush() throws IOException {
        rows.finish();
        stream.writeBatch();
        rows.reset();
        written += held;
        held = 0;
        bytes = 0;
    }

    /** Spark's own class, because the tasks and the driver load the classes of this file by different loaders. */
    public WriterCommitMessage commit() throws IOException {
        if (stream != null) {
            if (held > 0) {
                flush();
            }
            stream.end();
            close();
        }
        String message = task + "/" + written + "/" + file.getName();
        return new PythonWriterCommitMessage(message.getBytes(StandardCharsets.UTF_8));
    }

    public void abort() throws IOException {
        close();
        file.delete();
    }

    public void close() throws IOException {
        try {
            if (stream != null) {
                stream.close();
            }
        } finally {
            stream = null;
            if (vectors != null) {
                vectors.close();
                vectors = null;
            }
            if (memory != null) {
                memory.close();
                memory = null;
            }
        }
    }
}
