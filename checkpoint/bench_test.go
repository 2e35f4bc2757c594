package checkpoint

import (
	"fmt"
	"testing"
)

func benchmarkSave(b *testing.B, intervals int) {
	path, _ := place(b)
	f := opened(b, path)
	s := simple
	s.GTIDSet = s.ServerUUID
	for i := range intervals {
		s.GTIDSet += fmt.Sprintf(":%d-%d", 1000000+10*i, 1000005+10*i)
	}
	b.SetBytes(int64(len(s.GTIDSet)))
	for b.Loop() {
		s.Sequence++
		if err := f.Save(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSave(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("intervals=%d", n), func(b *testing.B) { benchmarkSave(b, n) })
	}
}

// BenchmarkEncode is Save without the disk.
func BenchmarkEncode(b *testing.B) {
	s := simple
	for i := range 10_000 {
		s.GTIDSet += fmt.Sprintf(":%d-%d", 1000000+10*i, 1000005+10*i)
	}
	for b.Loop() {
		file, err := encode(s)
		if err == nil {
			_, err = parse(file)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
