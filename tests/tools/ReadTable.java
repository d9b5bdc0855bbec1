import io.delta.kernel.Scan;
import io.delta.kernel.Snapshot;
import io.delta.kernel.TableManager;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.engine.FileReadResult;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.FileStatus;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;

/** Prints partition, offset, key and value of each row of topics' tables, read by Delta Kernel. */
public class ReadTable {
  public static void main(String[] paths) throws Exception {
    Engine engine = DefaultEngine.create(new Configuration());
    for (String path : paths) {
      System.out.println("table " + path);
      Snapshot snapshot = TableManager.loadSnapshot(path).build(engine);
      Scan scan = snapshot.getScanBuilder().build();
      Row state = scan.getScanState(engine);
      StructType physical = ScanStateRow.getPhysicalDataReadSchema(state);
      try (CloseableIterator<FilteredColumnarBatch> files = scan.getScanFiles(engine)) {
        while (files.hasNext()) {
          try (CloseableIterator<Row> rows = files.next().getRows()) {
            while (rows.hasNext()) {
              read(engine, state, physical, rows.next(), snapshot.getSchema());
            }
          }
        }
      }
    }
  }

  private static void read(Engine engine, Row state, StructType physical, Row file, StructType schema)
      throws Exception {
    FileStatus status = InternalScanFileUtils.getAddFileStatus(file);
    CloseableIterator<FileReadResult> read =
        engine.getParquetHandler()
            .readParquetFiles(Utils.singletonCloseableIterator(status), physical, Optional.empty());
    CloseableIterator<ColumnarBatch> batches = read.map(FileReadResult::getData);
    try (CloseableIterator<FilteredColumnarBatch> data =
        Scan.transformPhysicalData(engine, state, file, batches)) {
      while (data.hasNext()) {
        try (CloseableIterator<Row> rows = data.next().getRows()) {
          while (rows.hasNext()) {
            Row row = rows.next();
            System.out.printf(
                "%d %d %s %s%n",
                row.getInt(schema.indexOf("partition")),
                row.getLong(schema.indexOf("offset")),
                text(row, schema.indexOf("key")),
                text(row, schema.indexOf("value")));
          }
        }
      }
    }
  }

  private static String text(Row row, int column) {
    return row.isNullAt(column) ? "-" : new String(row.getBinary(column), StandardCharsets.UTF_8);
  }
}
