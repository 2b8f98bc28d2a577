"""Draws an invoice in the ways in which Portuguese invoicing programs draw one."""

from __future__ import annotations

from convertq.gateway.samples.invoices import Invoice
from convertq.gateway.samples.sheet import Sheet, day_first, money, shown, spelled
from reportlab.lib.pagesizes import A4, landscape
from reportlab.lib.utils import simpleSplit
from reportlab.pdfgen.canvas import Canvas


def classic(canvas: Canvas, invoice: Invoice) -> None:
    """Everything under each other: issuer, customer, table, rates, totals."""
    sheet = Sheet(canvas)
    sheet.write(50, invoice.issuer, 16, bold=True)
    sheet.down(20)
    sheet.stack(50, *invoice.address, f"NIF: {invoice.nif}")
    sheet.down(20)
    sheet.stack(50, "Exmo.(s) Sr.(s)", invoice.customer, f"NIF: PT {invoice.customer_nif}")
    sheet.down(20)
    sheet.stack(50, f"Fatura n.º {invoice.number}", f"Data de emissão: {day_first(invoice.issued)}")
    if invoice.due:
        sheet.stack(50, f"Vencimento: {day_first(invoice.due)}")
    sheet.down()
    sheet.table(
        invoice,
        [
            ("Descrição", "description", 50, False),
            ("Qtd.", "quantity", 330, True),
            ("Preço", "price", 400, True),
            ("IVA", "rate", 450, True),
            ("Total", "amount", 540, True),
        ],
    )
    sheet.rates(invoice, 50)
    totals(sheet, invoice, ("Total ilíquido", "Total de IVA", "Total a pagar"), " €")


def totals(sheet: Sheet, invoice: Invoice, labels: tuple[str, str, str], unit: str) -> None:
    amounts = (invoice.net, invoice.vat, invoice.net + invoice.vat)
    for label, amount in zip(labels, amounts, strict=True):
        sheet.pair(350, label, 540, money(amount, unit=unit))


def two_columns(canvas: Canvas, invoice: Invoice) -> None:
    """Issuer on the left, customer on the right at the same height; a spelled date; no table of rates."""
    sheet = Sheet(canvas)
    top = sheet.y
    sheet.stack(50, "FATURA-RECIBO", invoice.issuer, *invoice.address, f"Contribuinte n.º {invoice.nif}")
    sheet.y = top - 14
    sheet.stack(330, "Cliente", invoice.customer, f"Contribuinte n.º {invoice.customer_nif}")
    sheet.down(60)
    sheet.pair(50, "Fatura-Recibo n.º", 160, invoice.number, right=False)
    sheet.pair(50, "Data", 160, spelled(invoice.issued), right=False)
    sheet.down(20)
    sheet.table(
        invoice,
        [
            ("Serviço", "description", 50, False),
            ("Quantidade", "quantity", 340, True),
            ("P. unit.", "price", 410, True),
            ("Taxa IVA", "rate", 470, True),
            ("Montante", "amount", 545, True),
        ],
        thousands=" ",
    )
    for rate, base, vat in invoice.by_rate:
        sheet.pair(300, f"IVA {rate}% (base {money(base, ' ')})", 545, money(vat, " ", " €"))
    sheet.pair(300, "Total (EUR)", 545, money(invoice.net + invoice.vat, " "))


def receipt(canvas: Canvas, invoice: Invoice) -> None:
    """A wide till receipt: labels above their values, codes, dates with dots, a customer without NIF."""
    sheet = Sheet(canvas, landscape(A4))
    sheet.stack(60, "Original", invoice.issuer, f"NIPC {invoice.nif}", *invoice.address)
    sheet.down(20)
    labels = (
        ("Documento n.º", invoice.number),
        ("Data da fatura", day_first(invoice.issued, ".")),
        ("Adquirente", invoice.customer),
    )
    for row in (0, 1):
        for place, pair in zip((60, 260, 460), labels, strict=True):
            sheet.write(place, pair[row], 10, bold=row == 0)
        sheet.down()
    sheet.down(20)
    sheet.table(
        invoice,
        [
            ("Código", "code", 60, False),
            ("% IVA", "rate", 180, True),
            ("Produto", "description", 210, False),
            ("Quant.", "quantity", 520, True),
            ("Preço unitário", "price", 640, True),
            ("Valor", "amount", 760, True),
        ],
    )
    sheet.rates(invoice, 60, ("Taxa IVA", "Incidência", "Imposto"))
    sheet.pair(560, "Total geral", 760, money(invoice.net + invoice.vat, unit=" EUR"))


def column_by_column(canvas: Canvas, invoice: Invoice) -> None:
    """Draws the table one column after the other, with descriptions that take two lines."""
    sheet = Sheet(canvas)
    sheet.pair(50, "Emitente:", 130, invoice.issuer, right=False)
    sheet.pair(50, "NIF:", 130, invoice.nif, right=False)
    sheet.down(30)
    sheet.pair(50, "Faturado a:", 130, invoice.customer, right=False)
    sheet.pair(50, "NIF:", 130, invoice.customer_nif, right=False)
    sheet.down(30)
    sheet.pair(50, "N.º", 130, invoice.number, right=False)
    sheet.pair(50, "Emitida em", 130, invoice.issued.isoformat(), right=False)
    sheet.pair(50, "Pagar até", 130, day_first(invoice.due or invoice.issued, "-"), right=False)
    sheet.down(20)
    top = sheet.y
    for heading, shows, x, right in (
        ("Designação", "description", 50, False),
        ("Taxa", "rate", 330, True),
        ("Quant.", "quantity", 390, True),
        ("Valor unitário", "price", 470, True),
        ("Total líquido", "amount", 550, True),
    ):
        sheet.y = top
        sheet.write(x, heading, 9, bold=True, right=right)
        for item in invoice.items:
            sheet.down(26)
            draw_wrapped(sheet, x, shown(item, shows, "."), right)
    sheet.down(50)
    totals(sheet, invoice, ("Subtotal", "IVA total", "Total do documento"), "")
    sheet.down(20)
    sheet.rates(invoice, 50, ("% IVA", "Base tributável", "Valor IVA"))


def draw_wrapped(sheet: Sheet, x: float, text: str, right: bool) -> None:
    top = sheet.y
    for part in simpleSplit(text, "Helvetica", 9, 230):
        sheet.write(x, part, 9, right=right)
        sheet.down(11)
    sheet.y = top


def long_list(canvas: Canvas, invoice: Invoice) -> None:
    """Many pages, with the headings repeated on each."""
    sheet = Sheet(canvas)
    sheet.stack(50, invoice.issuer, f"NIF {invoice.nif}")
    sheet.down()
    sheet.stack(50, f"Cliente: {invoice.customer}", f"NIF: {invoice.customer_nif}")
    sheet.down(20)
    sheet.stack(50, f"Fatura {invoice.number}", f"Data: {day_first(invoice.issued, '-')}")
    sheet.stack(50, f"Data de vencimento: {day_first(invoice.due or invoice.issued, '-')}")
    sheet.down()
    sheet.table(
        invoice,
        [
            ("Ref.", "code", 50, False),
            ("Descrição", "description", 110, False),
            ("Qtd.", "quantity", 330, True),
            ("Preço unit.", "price", 410, True),
            ("IVA %", "rate", 460, True),
            ("Valor", "amount", 545, True),
        ],
    )
    sheet.rates(invoice, 50)
    totals(sheet, invoice, ("Total sem IVA", "Total IVA", "Total a pagar"), "")


def headings_once(canvas: Canvas, invoice: Invoice) -> None:
    """A table that runs on to a second, small page without its headings; the issuer's name is centred."""
    sheet = Sheet(canvas, (595, 420))
    canvas.setFont("Helvetica-Bold", 14)
    canvas.drawCentredString(297, sheet.y, invoice.issuer)
    sheet.down(18)
    sheet.stack(230, f"Contribuinte n.º {invoice.nif}")
    sheet.down(16)
    sheet.stack(50, "Exma. Sra.", invoice.customer, f"V/ N.º Contrib. {invoice.customer_nif}")
    sheet.down(20)
    sheet.pair(50, f"Fatura {invoice.number}", 545, f"Data: {day_first(invoice.issued)}")
    sheet.down()
    sheet.table(
        invoice,
        [
            ("Qtd.", "quantity", 70, True),
            ("Descrição", "description", 90, False),
            ("Preço", "price", 400, True),
            ("IVA", "rate", 460, True),
            ("Valor", "amount", 545, True),
        ],
        repeat_headings=False,
    )
    sheet.rates(invoice, 90)
    totals(sheet, invoice, ("Subtotal", "Total de IVA", "Total"), " €")
