package io.github.dormousekv;

import io.github.dormousekv.DormouseException.Code;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * The rows of the positions first, first+1, … of one tensor, in one or more direct ByteBuffers. What counts of a buffer is what is between its position
 * and its limit, as they are when the rows are given to a call; neither is changed. A buffer is read by a put, and written by a restore.
 */
public final class Rows {
    private final int first;
    private final List<Piece> pieces = new ArrayList<>();

    private static final class Piece {
        final ByteBuffer memory;
        final int count; // -1: as many as there is memory for
        final long rowStride;
        final long elemStride;

        Piece(ByteBuffer memory, int count, long rowStride, long elemStride) {
            this.memory = Library.given("memory", memory);
            this.count = count;
            this.rowStride = rowStride;
            this.elemStride = elemStride;
        }
    }

    private Rows(int first) {
        this.first = Library.atLeast0("first", first);
    }

    /** Rows from position 0 on, one after the other, as many as there is memory for. */
    public static Rows of(ByteBuffer memory) {
        return from(0).add(memory);
    }

    /** Rows from a position on, to which add adds memory. Without any, the tensor is left out. */
    public static Rows from(int first) {
        return new Rows(first);
    }

    /** This tensor is left out. */
    public static Rows none() {
        return from(0);
    }

    /** More rows, one after the other, as many as there is memory for; of a state: one, of all of it. */
    public Rows add(ByteBuffer memory) {
        pieces.add(new Piece(memory, -1, 0, 0));
        return this;
    }

    /** count more rows, with so many bytes from one to the next, and from a value to the next; 0: packed. */
    public Rows add(ByteBuffer memory, int count, long rowStride, long elemStride) {
        if (rowStride < 0 || elemStride < 0) {
            throw new IllegalArgumentException("strides of " + rowStride + " and " + elemStride + " bytes: expected 0 or more");
        }
        pieces.add(new Piece(memory, Library.atLeast0("count", count), rowStride, elemStride));
        return this;
    }

    /** Rows of all tensors as convert.c takes them: fills memory, and gives the shape. */
    static long[] pack(Descriptor model, List<Rows> rows, boolean write, List<ByteBuffer> memory) {
        List<Descriptor.Tensor> tensors = model.tensors();
        if (Library.given("rows", rows).size() != tensors.size()) {
            throw new DormouseException(Code.ROWS, "rows of " + rows.size() + " tensors: the model has " + tensors.size());
        }
        int n = 0;
        for (Rows r : rows) {
            n += 2 + (r == null ? 0 : 5 * r.pieces.size());
        }
        long[] shape = new long[n];
        int at = 0;
        for (int t = 0; t < rows.size(); t++) {
            Rows r = rows.get(t) == null ? none() : rows.get(t);
            shape[at++] = r.first;
            shape[at++] = r.pieces.size();
            for (Piece p : r.pieces) {
                ByteBuffer b = p.memory;
                Descriptor.Tensor tensor = tensors.get(t);
                if (!b.isDirect()) {
                    throw bad(tensor, "a heap buffer: expected one of ByteBuffer.allocateDirect, or of JNI's NewDirectByteBuffer");
                }
                if (write && b.isReadOnly()) {
                    throw bad(tensor, "a read-only buffer cannot be restored into");
                }
                long begin = b.position();
                long bytes = b.limit() - begin;
                long count = p.count;
                if (count < 0) {
                    long row = tensor.rowBytes();
                    count = row == 0 ? 1 : bytes / row;
                    if (row > 0 && bytes % row != 0) {
                        throw bad(tensor, bytes + " bytes are no whole rows of " + row);
                    }
                }
                memory.add(b);
                shape[at++] = begin;
                shape[at++] = bytes;
                shape[at++] = count;
                shape[at++] = p.rowStride;
                shape[at++] = p.elemStride;
            }
        }
        return shape;
    }

    private static DormouseException bad(Descriptor.Tensor tensor, String why) {
        return new DormouseException(Code.ROWS, tensor + ": " + why);
    }
}
