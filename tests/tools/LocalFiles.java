package kafkalike.tests;

import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local files without a process for each change of permissions and each look for a link. */
public class LocalFiles extends RawLocalFileSystem {
  private static final String MANAGER = "FileSystemBasedCheckpointFileManager";

  public void setPermission(Path path, FsPermission permission) throws IOException {
    String bits = permission.toString().substring(0, 9).replace('t', 'x').replace('T', '-');
    Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(bits));
  }

  public FileStatus getFileLinkStatus(Path path) throws IOException {
    boolean link = Files.isSymbolicLink(pathToFile(path).toPath());
    return link ? super.getFileLinkStatus(path) : getFileStatus(path);
  }

  /** Serve all local paths of this JVM; checkpoints of streams too, which Hadoop's other interface serves otherwise. */
  public void install(Configuration conf) throws Exception {
    URI uri = URI.create("file:///");
    LocalFileSystem files = new LocalFileSystem(this);
    files.initialize(uri, conf);
    FileSystem.get(uri, conf).close();
    Class[] types = {URI.class, Configuration.class, FileSystem.class};
    Method add = FileSystem.class.getDeclaredMethod("addFileSystemForTesting", types);
    add.setAccessible(true);
    add.invoke(null, new Object[] {uri, conf, files});
    String streaming = "org.apache.spark.sql.execution.streaming.";
    String[] names = {streaming + "checkpointing." + MANAGER, streaming + MANAGER};
    for (int i = 0; i < names.length; i++) {
      try {
        Class.forName(names[i], false, Thread.currentThread().getContextClassLoader());
        conf.set("spark.sql.streaming.checkpointFileManagerClass", names[i]);
        return;
      } catch (ClassNotFoundException missing) {
        // The releases of Spark have it in different packages.
      }
    }
  }
}
