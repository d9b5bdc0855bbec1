package kafkalike.spark;

import java.io.FileInputStream;
import java.io.IOException;

import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

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
        }
        if (memory != null) {
            memory.close();
            memory = null;
        }
    }
}
