// Spark's own BloomFilter as a judge: `make VERSION SEED KEYS OUT CAPACITY RATE` adds keys to a filter and writes it, `ask KEYS IN OUT` reads one and writes
// a byte for each key, `unite IN IN OUT` writes the union of two. A line of KEYS is s or l, a space, and a string or a long.

import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.spark.util.sketch.BloomFilter;

public class SparkJudge {
  public static void main(String[] words) throws Exception {
    switch (words[0]) {
      case "make" -> {
        BloomFilter.Version version = words[1].equals("1") ? BloomFilter.Version.V1 : BloomFilter.Version.V2;
        List<String> keys = keys(words[3]);
        long capacity = Long.parseLong(words[5]);
        long bits = BloomFilter.optimalNumOfBits(capacity, Double.parseDouble(words[6]));
        BloomFilter made = BloomFilter.create(version, capacity, bits, Integer.parseInt(words[2]));
        for (String key : keys)
          if (key.startsWith("s")) made.putString(key.substring(2));
          else made.putLong(Long.parseLong(key.substring(2)));
        write(made, words[4]);
      }
      case "ask" -> {
        BloomFilter read = read(words[2]);
        List<String> keys = keys(words[1]);
        byte[] found = new byte[keys.size()];
        for (int i = 0; i < found.length; i++) {
          String key = keys.get(i);
          boolean there = key.startsWith("s") ? read.mightContainString(key.substring(2)) : read.mightContainLong(Long.parseLong(key.substring(2)));
          found[i] = (byte) (there ? 1 : 0);
        }
        Files.write(Path.of(words[3]), found);
      }
      case "unite" -> write(read(words[1]).mergeInPlace(read(words[2])), words[3]);
      default -> throw new IllegalArgumentException(words[0]);
    }
  }

  static List<String> keys(String path) throws Exception {
    return Files.readAllLines(Path.of(path), StandardCharsets.UTF_8);
  }

  static BloomFilter read(String path) throws Exception {
    try (FileInputStream in = new FileInputStream(path)) {
      return BloomFilter.readFrom(in);
    }
  }

  static void write(BloomFilter filter, String path) throws Exception {
    try (FileOutputStream out = new FileOutputStream(path)) {
      filter.writeTo(out);
    }
  }
}
