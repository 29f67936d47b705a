package netattr

import (
	"bytes"
	"testing"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	var b []byte
	values := [][]byte{nil, {1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}}
	for i, v := range values {
		b = Append(b, uint16(i)|1<<15, v)
	}
	if len(b)%4 != 0 || Check(b) != nil {
		t.Fatalf("%d bytes, %v", len(b), Check(b))
	}
	n := 0
	for kind, v := range All(b) {
		if int(kind) != n || !bytes.Equal(v, values[n]) {
			t.Errorf("attribute %d is %d: %v", n, kind, v)
		}
		n++
	}
	if n != len(values) {
		t.Errorf("%d of %d", n, len(values))
	}
}

// FuzzAll: whatever comes, nothing beyond the input is read, and what All does not get to the end of, Check complains about.
func FuzzAll(f *testing.F) {
	f.Add([]byte{})
	f.Add(Append(AppendNumber(nil, 7, 9), 1, []byte("abc")))
	f.Add([]byte{3, 0, 1, 0})
	f.Add([]byte{200, 0, 1, 0, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		end := 0
		for _, v := range All(b) {
			end = min(len(b), (end+4+len(v)+3)&^3)
		}
		if whole := len(b)-end < 4; whole != (Check(b) == nil) {
			t.Errorf("%v: read up to %d, and %v", b, end, Check(b))
		}
	})
}
