package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
)

// Values of RFC 1035 that are needed to answer queries for addresses.
const (
	header     = 12
	typeA      = 1
	typeAAAA   = 28
	response   = 0x8180 // an answer, recursion desired and available
	noSuchName = 3
	pointer    = 0xC000 | header // to the name in the question
)

// answer resolves every name in the domain to 127.0.0.1, and to no other address. Other names do not exist.
func answer(names net.PacketConn) error {
	packet := make([]byte, 1500)
	for {
		n, from, err := names.ReadFrom(packet)
		if err != nil {
			return err
		}
		name, end, ok := question(packet[:n])
		if !ok {
			continue
		}
		kind := binary.BigEndian.Uint16(packet[end-4:])
		if _, err := names.WriteTo(reply(packet[:end], name, kind), from); err != nil {
			return err
		}
		if kind == typeA || kind == typeAAAA {
			fmt.Println("name", name)
		}
	}
}

// question returns the only name that a packet asks for, and the offset at which the type and class of the question
// end.
func question(packet []byte) (string, int, bool) {
	if len(packet) < header || binary.BigEndian.Uint16(packet[4:]) != 1 {
		return "", 0, false
	}
	var labels []string
	at := header
	for at < len(packet) && packet[at] != 0 {
		next := at + 1 + int(packet[at])
		if next >= len(packet) {
			return "", 0, false
		}
		labels = append(labels, string(packet[at+1:next]))
		at = next
	}
	end := at + 5
	return strings.ToLower(strings.Join(labels, ".")), end, end <= len(packet)
}

func reply(question []byte, name string, kind uint16) []byte {
	flags, answers := uint16(response), uint16(0)
	known := strings.HasSuffix(name, domain)
	switch {
	case !known:
		flags |= noSuchName
	case kind == typeA:
		answers = 1
	}
	out := append([]byte(nil), question...)
	binary.BigEndian.PutUint16(out[2:], flags)
	binary.BigEndian.PutUint16(out[6:], answers)
	// The answer has no name servers, and does not repeat additional records of the query (EDNS).
	binary.BigEndian.PutUint32(out[8:], 0)
	if answers == 1 {
		out = binary.BigEndian.AppendUint16(out, pointer)
		out = binary.BigEndian.AppendUint16(out, typeA)
		out = binary.BigEndian.AppendUint16(out, 1)
		out = binary.BigEndian.AppendUint32(out, 60)
		out = binary.BigEndian.AppendUint16(out, 4)
		out = append(out, 127, 0, 0, 1)
	}
	return out
}
