package io.github.dormousekv;

import java.nio.charset.StandardCharsets;

/** A call failed. {@link #code} says why; after damage on disk, {@link #file} and {@link #offset} say where. */
public final class DormouseException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** What a program may want to tell apart. The numbers are those of dormouse.h. */
    public enum Code {
        /** An option or an argument is refused. */
        ARGUMENT(1),
        /** The store, model or match was closed. */
        CLOSED(2),
        /** This process was forked from one that uses the library. */
        FORKED(3),
        /** Another copy of the library is in this process. */
        SECOND_COPY(4),
        /** The call's {@link Cancel} was set. */
        CANCELLED(5),
        /** The call's time is over. */
        DEADLINE(6),
        /** Damage on disk, at offset in file. Of index.db: make the call again, it waits for a new index. */
        CORRUPT(7),
        /** The budget, or the disk, is full, and nothing more can be evicted. */
        NO_SPACE(8),
        /** An fsync has failed: close the store and open it again. */
        POISONED(9),
        /** The store is open already; the message names the process. */
        LOCKED(10),
        /** The store is between suspend and resume. */
        SUSPENDED(11),
        /** The store was opened read-only. */
        READ_ONLY(13),
        /** The store was to be closed while a match is open. */
        LEASED(14),
        /** A prefix that the call needs is not in the store. */
        NOT_STORED(15),
        /** There is no ref, or model, of that name. */
        NOT_FOUND(16),
        /** The model was retired. */
        RETIRED(17),
        /** Too large, or too many. */
        LIMIT(18),
        /** All is done, but some deleted bytes could not be destroyed yet. */
        NOT_DESTROYED(19),
        /** The prompt contradicts itself. */
        PROMPT(20),
        /** Rows do not fit the model's tensors. */
        ROWS(21),
        /** The model's descriptor is refused. */
        DESCRIPTOR(22),
        /** The folder, or a file in it, is not the store's, or can be written to by others. */
        FOREIGN(23),
        /** A store of another version of the format. */
        VERSION(24),
        /** States of this llama.cpp context cannot be kept safely. */
        REFUSED(26),
        /** The llama.cpp context is not the model, or has not the adapters, that it is said to have. */
        IDENTITY(27),
        /** The sequence has tokens, and a restore needs an empty one. */
        NOT_EMPTY(28),
        /** What the sequence holds does not fit the prompt, or is not there. */
        POSITIONS(29),
        /** The sequence cannot hold what it is said to hold; offset is the first position that contradicts. */
        LINEAGE(30),
        /** llama.cpp did not hand out or accept a state as it should. */
        STATE(31),
        /** The prompt is longer than the context. */
        TOO_LONG(32),
        /** llama_decode failed. */
        DECODE(33),
        /** Another call is at work on this llama.cpp context. */
        BUSY(34),
        /** A {@link Match.LayerReady} or a {@link Log} called the library, which waits for it. */
        CALLBACK(35),
        /** The system does not let this process read or write there: permissions, a read-only file system. */
        DENIED(36),
        /** Anything else. */
        OTHER(99);

        final int status;

        Code(int status) {
            this.status = status;
        }

        private static Code of(int status) {
            if (status == 12) { // of the store, where 2 is of the handle
                return CLOSED;
            }
            for (Code c : values()) {
                if (c.status == status) {
                    return c;
                }
            }
            return OTHER;
        }
    }

    private final Code code;
    private final String file;
    private final long offset;

    DormouseException(Code code, String message) {
        this(code, message, null, -1);
    }

    private DormouseException(Code code, String message, String file, long offset) {
        super(message);
        this.code = code;
        this.file = file;
        this.offset = offset;
    }

    /** Is called by calls.c. */
    static DormouseException of(int status, long offset, byte[] file, byte[] message) {
        String path = file.length == 0 ? null : new String(file, StandardCharsets.UTF_8);
        return new DormouseException(Code.of(status), new String(message, StandardCharsets.UTF_8), path, offset);
    }

    public Code code() {
        return code;
    }

    /** The path of the file that is damaged, or null. */
    public String file() {
        return file;
    }

    /** Where in the file; of LINEAGE, in the prompt; else -1. */
    public long offset() {
        return offset;
    }
}
