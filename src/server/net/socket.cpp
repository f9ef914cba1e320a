#include "net/socket.h"

template class lmtp::tls::Stream<lmtp::server::TcpStream>;
