// Package netattr reads and writes netlink attributes: a length, a kind and a value, one after the other, each padded to whole words.
package netattr

import (
	"encoding/binary"
	"fmt"
	"iter"
)

const (
	header = 4
	align  = 4
	// kindMask takes off the flags of a kind, such as the one for network byte order (NLA_TYPE_MASK).
	kindMask = 1<<14 - 1
)

// All goes over the attributes in b, without a copy, up to the first that is no such thing.
func All(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(kind uint16, value []byte) bool) { _ = walk(b, yield) } // what it is, Check says
}

// Check returns an error if All would not get to the end of b.
func Check(b []byte) error {
	return walk(b, func(uint16, []byte) bool { return true })
}

func walk(b []byte, yield func(kind uint16, value []byte) bool) error {
	for len(b) >= header {
		size := int(binary.NativeEndian.Uint16(b))
		if size < header || size > len(b) {
			return fmt.Errorf("netlink attribute of %d bytes in %d", size, len(b))
		}
		if !yield(binary.NativeEndian.Uint16(b[2:])&kindMask, b[header:size]) {
			return nil
		}
		b = b[min(len(b), (size+align-1)&^(align-1)):]
	}
	return nil
}

// Append adds an attribute.
func Append(out []byte, kind uint16, value []byte) []byte {
	out = binary.NativeEndian.AppendUint16(out, uint16(header+len(value)))
	out = binary.NativeEndian.AppendUint16(out, kind)
	out = append(out, value...)
	return append(out, make([]byte, -len(value)&(align-1))...)
}

// AppendNumber adds an attribute of 32 bits in the machine's order.
func AppendNumber(out []byte, kind uint16, n uint32) []byte {
	return Append(out, kind, binary.NativeEndian.AppendUint32(nil, n))
}
